package sink

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/identity"
)

// Values of SASL.Identity: whose workload identity logs in.
const (
	identityAzure  = "azure"
	identityGoogle = "google"
)

// bearer is the mechanism OAUTHBEARER.
type bearer struct{ cfg SASL }

// Name implements sasl.Mechanism.
func (bearer) Name() string { return mechanismOAuth }

// Authenticate implements sasl.Mechanism.
func (b bearer) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	token, refused, err := b.cfg.present().token(ctx, host)
	if err != nil {
		return nil, nil, away(err)
	}
	session, first, err := oauth.Auth{Token: token.Value, Extensions: b.cfg.Extensions}.AsMechanism().Authenticate(ctx, host)
	return bearing{session, refused}, first, err
}

// token returns the token for a broker, and a function for its refusal.
func (s SASL) token(ctx context.Context, host string) (token identity.Token, refused func(), err error) {
	nothing := func() {}
	switch {
	case s.Token != "":
		return identity.Token{Value: s.Token.Reveal()}, nothing, nil
	case s.Identity == identityAzure:
		token, err = identity.Azure(ctx, s.azureScope(host))
		return token, nothing, err
	case s.Identity == identityGoogle:
		token, err = googleToken(ctx)
		return token, nothing, err
	}
	granted, err := s.grant().Token(ctx)
	if failure.ClassOf(err) == failure.Config && len(s.Written) > 0 { // the next attempt reads the files again
		err = &failure.Error{Class: failure.Transient, Remedy: s.Written.Rotation(), Err: err}
	}
	return granted.Token, granted.Refused, err
}

func (s SASL) grant() identity.Grant {
	return identity.Grant{URL: s.TokenURL, ClientID: s.ClientID, ClientSecret: s.ClientSecret.Reveal(), Scopes: s.Scopes, Options: saslPrefix}
}

// azureScope is the configured scope, or else the scope of the Event Hubs namespace.
func (s SASL) azureScope(host string) string {
	if len(s.Scopes) > 0 {
		return s.Scopes[0]
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return "https://" + host + "/.default"
}

// googleToken is an access token in the form of Google's Managed Service for Apache Kafka:
// not signed, as Google's brokers look into the access token itself.
func googleToken(ctx context.Context) (identity.Token, error) {
	token, err := identity.Google(ctx, "https://www.googleapis.com/auth/cloud-platform")
	if err != nil {
		return token, err
	}
	email, err := identity.GoogleAccount(ctx)
	if err != nil {
		return token, err
	}
	part := func(claims map[string]any) string {
		text, _ := json.Marshal(claims) // of strings and numbers
		return base64.RawURLEncoding.EncodeToString(text)
	}
	token.Value = part(map[string]any{"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}) + "." +
		part(map[string]any{"iss": "Google", "sub": email, "scope": "kafka", "iat": time.Now().Unix(), "exp": token.Ends.Unix()}) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(token.Value))
	return token, nil
}

// bearing is a login with a token.
type bearing struct {
	sasl.Session
	refused func()
}

// Challenge implements sasl.Session. A broker refuses a token by a challenge (RFC 7628).
func (b bearing) Challenge(answer []byte) (done bool, reply []byte, err error) {
	if len(answer) > 0 {
		b.refused()
	}
	return b.Session.Challenge(answer)
}
