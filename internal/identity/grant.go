package identity

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Grant is the client credentials grant of OAuth (RFC 6749 §4.4).
type Grant struct {
	URL, ClientID string
	ClientSecret  string // secret
	Scopes        []string
	// Options name the settings, for remedies.
	Options string
}

// String is the grant without secrets.
func (g Grant) String() string { return "client " + g.ClientID + " at " + place(g.URL) }

// Granted is a token of a Grant.
type Granted struct {
	Token
	// Refused drops the useless token: the next question is asked anew.
	Refused func()
}

// grants are the process's, by everything but the secret: all connections share a
// token.
var grants = struct {
	sync.Mutex
	by map[string]grantTokens
}{by: map[string]grantTokens{}}

// grantTokens are those of a secret.
type grantTokens struct {
	secret string
	*kept[Token]
}

// Token returns an access token, kept as all values are; a token without an end is
// good for a single use. A refusal of the request is an error of class Config, any other
// error is transient. Token blocks for answerTimeout at the most. Several goroutines
// may use the same Grant.
func (g Grant) Token(ctx context.Context) (Granted, error) {
	tokens := g.tokens()
	token, err := tokens.get(ctx, "")
	return Granted{token, func() { tokens.forget(func(t Token) bool { return t.Value == token.Value }) }}, err
}

func (g Grant) tokens() *kept[Token] {
	key := strings.Join(append([]string{g.URL, g.ClientID}, g.Scopes...), "\x00")
	grants.Lock()
	defer grants.Unlock()
	tokens, known := grants.by[key]
	if !known || tokens.secret != g.ClientSecret {
		tokens = grantTokens{g.ClientSecret, newKept(g.ask, time.Now)}
		grants.by[key] = tokens
	}
	return tokens.kept
}

func (g Grant) ask(ctx context.Context) (Token, time.Time, error) {
	config := clientcredentials.Config{
		ClientID: g.ClientID, ClientSecret: g.ClientSecret,
		TokenURL: g.URL, Scopes: g.Scopes, AuthStyle: oauth2.AuthStyleInHeader,
	}
	token, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	if err == nil {
		return Token{token.AccessToken, token.Expiry}, token.Expiry, nil
	}
	what := "ask for an OAuth token of " + g.String()
	answer, answered := errors.AsType[*oauth2.RetrieveError](err)
	if !answered {
		return Token{}, time.Time{}, unavailable("start the token endpoint, or correct "+g.Options+"token_url", what, cause(ctx, err))
	}
	if status := answer.Response.StatusCode; status >= 500 || status == http.StatusTooManyRequests {
		return Token{}, time.Time{}, unavailable("look at the token endpoint's log", what, errors.New("it answers "+answer.Response.Status))
	}
	return Token{}, time.Time{}, failure.Configf("check "+g.Options+"token_url, client_id, client_secret and scopes",
		"%s: it answers %s: %s %s", what, answer.Response.Status, answer.ErrorCode, answer.ErrorDescription)
}
