package sink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
)

const (
	mechanismOAuth = "OAUTHBEARER"
	mechanismAWS   = "AWS_MSK_IAM"
)

// mechanisms are the values of sink.kafka.sasl.mechanism, each with its other keys.
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

// mechanism returns the means to authenticate, or nil for none.
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

// A token is asked for anew this long before it expires, or earlier where it
// lives for less than twice as long.
const tokenMargin = time.Minute

// tokenSource gets tokens with the client credentials grant (RFC 6749 §4.4)
// and keeps each until shortly before expiry; a token without an expiry is good
// for one use. Several goroutines may use a tokenSource.
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

// ask fetches a token. A refused request is a configuration error; every other
// error is transient.
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
	at := endpoint(s.cfg.TokenURL)
	answer, refused := errors.AsType[*oauth2.RetrieveError](err)
	if !refused {
		if request, ok := errors.AsType[*url.Error](err); ok {
			err = request.Err // without the URL
		}
		return nil, &failure.Error{Class: failure.Transient, Remedy: "start the token endpoint, or correct sink.kafka.sasl.token_url",
			Err: fmt.Errorf("ask %s for an OAuth token: %w", at, err)}
	}
	if status := answer.Response.StatusCode; status >= 500 || status == http.StatusTooManyRequests {
		return nil, fmt.Errorf("ask for an OAuth token: %s answers %s", at, answer.Response.Status)
	}
	return nil, failure.Configf("check sink.kafka.sasl.token_url, client_id, client_secret and scopes",
		"ask for an OAuth token: %s answers %s: %s %s", at, answer.Response.Status, answer.ErrorCode, answer.ErrorDescription)
}

// endpoint is a URL as errors may show it: user, password and query may be secrets.
func endpoint(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "the token endpoint"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

const dialTimeout = 10 * time.Second

// dialer returns a function that connects to a broker. With TLS the files are
// read anew for every connection, so that renewed certificates need no restart;
// dialer also reads them once, to find errors at the start. Nothing is written
// without the lease; a nil lease is always held.
func dialer(cfg TLS, held *lease.Lease) (broker.DialFunc, error) {
	plain := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialPlain(ctx, network, addr, held)
	}
	if cfg == (TLS{}) {
		return plain, nil
	}
	if _, err := clientTLS(cfg, tlsPrefix); err != nil {
		return nil, err
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conf, err := clientTLS(cfg, tlsPrefix)
		if err != nil {
			return nil, err
		}
		return dialTLS(ctx, plain, network, addr, conf)
	}, nil
}

func dialPlain(ctx context.Context, network, addr string, held *lease.Lease) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, broker.Address(ctx, addr))
	if err != nil {
		return nil, err
	}
	return held.Conn(conn), nil
}

// dialTLS does what tls.Dialer would, over a plain connection.
func dialTLS(ctx context.Context, plain broker.DialFunc, network, addr string, conf *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := plain(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if conf.ServerName == "" {
		conf.ServerName, _, _ = net.SplitHostPort(addr) // addr was dialled
	}
	encrypted := tls.Client(conn, conf)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return encrypted, nil
}

// clientTLS reads the files named in cfg, by keys with the prefix. Where cfg has no server
// name, the dialer takes it from the address.
func clientTLS(cfg TLS, prefix string) (*tls.Config, error) {
	conf := &tls.Config{ServerName: cfg.ServerName, MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, failure.Configf("make the file readable for the connector, or correct "+prefix+"ca_file",
				"read %sca_file: %w", prefix, err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, failure.Configf("put the certificate authority's certificate into the file in PEM form",
				"%sca_file %s holds no certificate", prefix, cfg.CAFile)
		}
	}
	if cfg.CertFile != "" || cfg.KeyFile != "" {
		cert, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, failure.Configf("set "+prefix+"cert_file and key_file to a certificate and its key, both in PEM form",
				"load %scert_file and key_file: %w", prefix, err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	return conf, nil
}
