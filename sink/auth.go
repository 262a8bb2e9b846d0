package sink

import (
	"context"
	"os"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/cdc-outbox/cdc-outbox/config"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// mechanism returns how to authenticate, or nil for not at all.
func mechanism(cfg config.SASL) (sasl.Mechanism, error) {
	user, pass := cfg.Username, cfg.Password.Reveal()
	switch cfg.Mechanism {
	case "":
		return nil, nil
	case "PLAIN":
		return plain.Auth{User: user, Pass: pass}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: pass}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: pass}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauthBearer(cfg)
	case "AWS_MSK_IAM":
		return awsIAM(cfg)
	}
	return nil, failure.Configf("use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM",
		"sink.kafka.sasl.mechanism %q is unknown", cfg.Mechanism)
}

func oauthBearer(cfg config.SASL) (sasl.Mechanism, error) {
	if cfg.Token != "" {
		return oauth.Auth{Token: cfg.Token.Reveal()}.AsMechanism(), nil
	}
	if cfg.TokenURL == "" {
		return nil, failure.Configf("set sink.kafka.sasl.token, or token_url with client_id and client_secret",
			"sink.kafka.sasl.mechanism OAUTHBEARER needs a token")
	}
	tokens := &tokenSource{cfg: cfg}
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := tokens.token(ctx)
		return oauth.Auth{Token: token}, err
	}), nil
}

// awsIAM reads the environment for each session, as AWS's own clients do.
func awsIAM(cfg config.SASL) (sasl.Mechanism, error) {
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
