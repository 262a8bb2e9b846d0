package sink

import (
	"context"
	"net"
	"os"
	"syscall"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/identity"
)

const (
	mechanismOAuth = "OAUTHBEARER"
	mechanismAWS   = "AWS_MSK_IAM"
)

// mechanisms are the values of sink.kafka.sasl.mechanism, each with its other keys. Clients
// call a mechanism for each login: at a connection's start, and before the end of its session
// (connections.max.reauth.ms of the brokers).
var mechanisms = map[string]struct {
	members []string
	make    func(SASL) sasl.Mechanism
}{
	"PLAIN": {password, func(s SASL) sasl.Mechanism {
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			now := s.present()
			return plain.Auth{User: now.Username, Pass: now.Password.Reveal()}, nil
		})
	}},
	"SCRAM-SHA-256": {password, func(s SASL) sasl.Mechanism { return scram.Sha256(s.scram) }},
	"SCRAM-SHA-512": {password, func(s SASL) sasl.Mechanism { return scram.Sha512(s.scram) }},
	mechanismOAuth: {[]string{"identity", "token", "token_url", "client_id", "client_secret", "scopes", "extensions"},
		func(s SASL) sasl.Mechanism { return bearer{s} }},
	mechanismAWS: {[]string{"access_key", "secret_key", "session_token"},
		func(s SASL) sasl.Mechanism { return aws.ManagedStreamingIAM(s.aws) }},
}

var password = []string{"username", "password"}

// mechanism returns the means to authenticate, or nil for none.
func mechanism(s SASL) sasl.Mechanism {
	if s.Mechanism == "" {
		return nil
	}
	return mechanisms[s.Mechanism].make(s)
}

func (s SASL) scram(context.Context) (scram.Auth, error) {
	now := s.present()
	return scram.Auth{User: now.Username, Pass: now.Password.Reveal()}, nil
}

// aws returns the configured credentials, or else those of the workload.
func (s SASL) aws(ctx context.Context) (aws.Auth, error) {
	if now := s.present(); now.AccessKey != "" {
		return aws.Auth{AccessKey: now.AccessKey, SecretKey: now.SecretKey.Reveal(), SessionToken: now.SessionToken.Reveal()}, nil
	}
	found, err := identity.AWS(ctx)
	if err != nil {
		return aws.Auth{}, away(err)
	}
	return aws.Auth{AccessKey: found.AccessKey, SecretKey: found.SecretKey, SessionToken: found.SessionToken}, nil
}

// renews reports whether a login after the refusal err may have other credentials: files are
// read again, and sources have new tokens.
func (s SASL) renews(err error) bool {
	if !turnedAway(err) {
		return false
	}
	switch {
	case len(s.Written) > 0:
		return true
	case s.Mechanism == mechanismOAuth:
		return s.Token == ""
	}
	return s.Mechanism == mechanismAWS && s.AccessKey == ""
}

// unconnected is the error of a login without an attempt, for want of credentials.
type unconnected struct{ error }

// away is the error of a source of credentials. A transient error is as a broker's absence:
// by its kind a client knows of no connection, and tries again.
func away(err error) error {
	if failure.ClassOf(err) != failure.Transient {
		return err
	}
	return unconnected{err}
}

// Unwrap returns the error, and the kind.
func (u unconnected) Unwrap() []error {
	return []error{u.error, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTDOWN)}}
}
