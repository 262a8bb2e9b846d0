package sink

import (
	"context"
	"os"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

const (
	mechanismOAuth = "OAUTHBEARER"
	mechanismAWS   = "AWS_MSK_IAM"
)

// mechanisms are the values of sink.kafka.sasl.mechanism, with the keys beside it
// that each takes.
var mechanisms = map[string]struct {
	members []string
	make    func(SASL) (sasl.Mechanism, error)
}{
	"PLAIN": {password, func(s SASL) (sasl.Mechanism, error) {
		return plain.Auth{User: s.Username, Pass: s.Password.Reveal()}.AsMechanism(), nil
	}},
	"SCRAM-SHA-256": {password, func(s SASL) (sasl.Mechanism, error) {
		return scram.Auth{User: s.Username, Pass: s.Password.Reveal()}.AsSha256Mechanism(), nil
	}},
	"SCRAM-SHA-512": {password, func(s SASL) (sasl.Mechanism, error) {
		return scram.Auth{User: s.Username, Pass: s.Password.Reveal()}.AsSha512Mechanism(), nil
	}},
	mechanismOAuth: {[]string{"token", "token_url", "client_id", "client_secret", "scopes"}, oauthBearer},
	mechanismAWS:   {[]string{"access_key", "secret_key", "session_token"}, awsIAM},
}

var password = []string{"username", "password"}

// mechanism returns how to authenticate, or nil for not at all.
func mechanism(s SASL) (sasl.Mechanism, error) {
	if s.Mechanism == "" {
		return nil, nil
	}
	return mechanisms[s.Mechanism].make(s)
}

func oauthBearer(cfg SASL) (sasl.Mechanism, error) {
	if cfg.Token != "" {
		return oauth.Auth{Token: cfg.Token.Reveal()}.AsMechanism(), nil
	}
	tokens := &tokenSource{cfg: cfg}
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := tokens.token(ctx)
		return oauth.Auth{Token: token}, err
	}), nil
}

// awsIAM reads the environment for each session, as AWS's own clients do.
func awsIAM(cfg SASL) (sasl.Mechanism, error) {
	credentials := func(context.Context) (aws.Auth, error) {
		auth := aws.Auth{
			AccessKey:    cfg.AccessKey,
			SecretKey:    cfg.SecretKey.Reveal(),
			SessionToken: cfg.SessionToken.Reveal(),
		}
		if auth.AccessKey == "" && auth.SecretKey == "" {
			auth.AccessKey = os.Getenv("AWS_ACCESS_KEY_ID")
			auth.SecretKey = os.Getenv("AWS_SECRET_ACCESS_KEY")
			auth.SessionToken = os.Getenv("AWS_SESSION_TOKEN")
		}
		if auth.AccessKey == "" || auth.SecretKey == "" {
			return auth, failure.Configf(
				"set sink.kafka.sasl.access_key and secret_key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
				"sink.kafka.sasl.mechanism AWS_MSK_IAM needs an access key and its secret")
		}
		return auth, nil
	}
	if _, err := credentials(context.Background()); err != nil {
		return nil, err
	}
	return aws.ManagedStreamingIAM(credentials), nil
}
