package sink

import (
	"context"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/identity"
)

// WhoLogsIn returns the owner of the login at the brokers, as far as known here, and the end of the token or
// of the credentials, if any. Both are asked for, without a login. "": a constant login.
func (o *Options) WhoLogsIn(ctx context.Context) (who string, ends time.Time, err error) {
	s := o.SASL
	switch {
	case s.Mechanism == mechanismAWS && s.AccessKey == "":
		found, err := identity.AWS(ctx)
		return identity.AWSName(), found.Ends, err
	case s.Mechanism == mechanismOAuth && s.Token == "":
		token, _, err := s.present().token(ctx, o.Brokers[0])
		return s.bearerName(), token.Ends, err
	case len(s.Written) > 0:
		return "the login in " + strings.Join(s.Written.Paths(), ", "), ends, nil
	}
	return "", ends, nil
}

// bearerName is the owner of the tokens.
func (s SASL) bearerName() string {
	switch s.Identity {
	case identityAzure:
		return identity.AzureName()
	case identityGoogle:
		return identity.GoogleName()
	}
	return "OAuth " + s.grant().String()
}
