package sink

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/config"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// A token is asked for anew this long before it expires, or earlier where it
// lives for less than twice as long.
const tokenMargin = time.Minute

// tokenSource gets tokens with the client credentials grant (RFC 6749 §4.4)
// and keeps each until shortly before it expires. It may be used by several
// goroutines.
type tokenSource struct {
	cfg config.SASL

	mu      sync.Mutex
	current string
	renew   time.Time
}

// tokenAnswer is the token endpoint's answer (RFC 6749 §5.1 and §5.2).
type tokenAnswer struct {
	AccessToken string  `json:"access_token"`
	ExpiresIn   seconds `json:"expires_in"`
	Error       string  `json:"error"`
	Description string  `json:"error_description"`
}

// seconds is a token's lifetime. The RFC wants a whole number; some servers send
// a string, or a fraction. What is none of these is 0: the token is good for one
// use.
type seconds time.Duration

// longestLife is as long as any token is kept.
const longestLife = 24 * time.Hour

// UnmarshalJSON implements json.Unmarshaler.
func (s *seconds) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64)
	if err != nil || !(n > 0) { // nor NaN
		n = 0
	}
	*s = seconds(min(n, longestLife.Seconds()) * float64(time.Second))
	return nil
}

func (s *tokenSource) token(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != "" && time.Now().Before(s.renew) {
		return s.current, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	answer, err := s.ask(ctx)
	if err != nil {
		return "", err
	}
	lifetime := time.Duration(answer.ExpiresIn)
	s.current = answer.AccessToken
	s.renew = time.Now().Add(lifetime - min(tokenMargin, lifetime/2))
	return s.current, nil
}

// ask fetches a token. An answer that says that the request is wrong is a
// configuration error; everything else may pass.
func (s *tokenSource) ask(ctx context.Context) (tokenAnswer, error) {
	var answer tokenAnswer
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(s.cfg.Scopes) > 0 {
		form.Set("scope", strings.Join(s.cfg.Scopes, " "))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return answer, failure.Configf("set it to the URL of the identity provider's token endpoint",
			"sink.kafka.sasl.token_url: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(url.QueryEscape(s.cfg.ClientID), url.QueryEscape(s.cfg.ClientSecret.Reveal()))
	client := http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return answer, fmt.Errorf("ask for an OAuth token: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return answer, fmt.Errorf("read the OAuth token: %w", err)
	}
	decodeErr := json.Unmarshal(body, &answer)
	switch {
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests:
		return answer, fmt.Errorf("ask for an OAuth token: %s answers %s", s.cfg.TokenURL, resp.Status)
	case resp.StatusCode >= 400:
		return answer, failure.Configf("check sink.kafka.sasl.token_url, client_id, client_secret and scopes",
			"ask for an OAuth token: %s answers %s: %s %s", s.cfg.TokenURL, resp.Status, answer.Error, answer.Description)
	case decodeErr != nil || answer.AccessToken == "":
		return answer, failure.Configf("set sink.kafka.sasl.token_url to an OAuth 2 token endpoint",
			"ask for an OAuth token: %s answers %s without one", s.cfg.TokenURL, resp.Status)
	}
	return answer, nil
}
