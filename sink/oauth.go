package sink

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// A token is asked for anew this long before it expires, or earlier where it
// lives for less than twice as long.
const tokenMargin = time.Minute

// tokenSource gets tokens with the client credentials grant (RFC 6749 §4.4)
// and keeps each until shortly before it expires; one that does not say when is
// good for one use. It may be used by several goroutines.
type tokenSource struct {
	cfg SASL

	mu      sync.Mutex
	current string
	renew   time.Time
}

func (s *tokenSource) token(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != "" && time.Now().Before(s.renew) {
		return s.current, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	token, err := s.ask(ctx)
	if err != nil {
		return "", err
	}
	s.current, s.renew = token.AccessToken, time.Time{}
	if lifetime := time.Until(token.Expiry); lifetime > 0 {
		s.renew = time.Now().Add(lifetime - min(tokenMargin, lifetime/2))
	}
	return s.current, nil
}

// ask fetches a token. An answer that says that the request is wrong is a
// configuration error; everything else may pass.
func (s *tokenSource) ask(ctx context.Context) (*oauth2.Token, error) {
	grant := clientcredentials.Config{
		ClientID: s.cfg.ClientID, ClientSecret: s.cfg.ClientSecret.Reveal(),
		TokenURL: s.cfg.TokenURL, Scopes: s.cfg.Scopes, AuthStyle: oauth2.AuthStyleInHeader,
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
	token, err := grant.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	if err == nil {
		return token, nil
	}
	answer, refused := errors.AsType[*oauth2.RetrieveError](err)
	if !refused {
		return nil, &failure.Error{Class: failure.Transient, Remedy: "start the token endpoint, or correct sink.kafka.sasl.token_url",
			Err: fmt.Errorf("ask %s for an OAuth token: %w", s.cfg.TokenURL, err)}
	}
	if status := answer.Response.StatusCode; status >= 500 || status == http.StatusTooManyRequests {
		return nil, fmt.Errorf("ask for an OAuth token: %s answers %s", s.cfg.TokenURL, answer.Response.Status)
	}
	return nil, failure.Configf("check sink.kafka.sasl.token_url, client_id, client_secret and scopes",
		"ask for an OAuth token: %s answers %s: %s %s", s.cfg.TokenURL, answer.Response.Status, answer.ErrorCode, answer.ErrorDescription)
}
