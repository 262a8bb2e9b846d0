package sink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMode25AllBrokersDownAndUp(t *testing.T) {
	c := startCluster(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "orders"))
	w := newWitness()
	k, logs := newKafka(t, c.config(), WithObserver(w))
	evs := events("orders", 200)
	deliver(t, k, evs[:100])
	c.net.fail()
	done := make(chan error, 1)
	go func() { done <- k.Deliver(deadline(t), evs[100:], noReject(t)) }()
	await.Until(t, "reconnects", func() bool { return w.reconnects.Load() > 3 })
	select {
	case err := <-done:
		t.Fatalf("delivered to brokers that are down: %v", err)
	default:
	}
	if n := logs.FilterMessage("cannot connect to Kafka broker, retrying").Len(); n == 0 || n > 4 {
		t.Errorf("%d warnings, want one for each broker and seed", n)
	}
	c.net.heal()
	must.OK(t, <-done)
	ascending(t, c.values(t, "orders", 2), 200)
}

func TestMode25CancelDuringOutageReturns(t *testing.T) {
	for _, name := range []string{"before the first connection", "with records on their way"} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, kfake.SeedTopics(2, "orders"))
			w := newWitness()
			k, _ := newKafka(t, c.config(), WithObserver(w))
			evs := events("orders", 20)
			if name != "before the first connection" {
				deliver(t, k, evs[:10])
			}
			c.net.fail()
			stop := errors.New("stop")
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() { done <- k.Deliver(ctx, evs[10:], noReject(t)) }()
			await.Until(t, "a reconnect", func() bool { return w.reconnects.Load() > 0 })
			cancel(stop)
			if err := <-done; !errors.Is(err, stop) {
				t.Errorf("got %v", err)
			}
			k.Close() // the brokers never come back
		})
	}
}

func TestMode32DeniedIsConfiguration(t *testing.T) {
	login := SASL{Mechanism: "PLAIN", Username: "cdc", Password: "secret"}
	describe := kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "orders",
		Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationDescribe, Allow: true}
	for name, acls := range map[string][]kfake.ACL{"describe": nil, "write": {describe}} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, kfake.SeedTopics(2, "orders"), kfake.EnableSASL(), kfake.EnableACLs(),
				kfake.Superuser("PLAIN", "admin", "admin"), kfake.User("PLAIN", "cdc", "secret", acls...))
			cfg := c.config()
			cfg.SASL = login
			k, _ := newKafka(t, cfg)
			err := k.Deliver(deadline(t), events("orders", 5), noReject(t))
			if failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), "orders") &&
				!errors.Is(err, kerr.ClusterAuthorizationFailed) {
				t.Fatalf("got %v of class %d", err, failure.ClassOf(err))
			}
			if r := failure.RemedyOf(err); !strings.Contains(r, "kafka-acls.sh") || !strings.Contains(r, "User:cdc") {
				t.Errorf("remedy %q", r)
			}
		})
	}
}

func TestMode32WrongLoginIsConfiguration(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			c := startCluster(t, kfake.SeedTopics(2, "orders"), kfake.EnableSASL(),
				kfake.Superuser(mechanism, "cdc", "secret"))
			cfg := c.config()
			cfg.SASL = SASL{Mechanism: mechanism, Username: "cdc", Password: "wrong"}
			k, _ := newKafka(t, cfg)
			err := k.Deliver(deadline(t), events("orders", 5), noReject(t))
			if failure.ClassOf(err) != failure.Config { // kfake cuts the connection where Kafka says why
				t.Fatalf("got %v of class %d", err, failure.ClassOf(err))
			}
			if r := failure.RemedyOf(err); !strings.Contains(r, "sink.kafka.sasl") {
				t.Errorf("remedy %q", r)
			}

			cfg.SASL.Password = "secret"
			right, _ := newKafka(t, cfg)
			if err := right.Deliver(deadline(t), events("orders", 5), noReject(t)); err != nil {
				t.Errorf("with the right password: %v", err)
			}
		})
	}
}

// A refused login with credentials that change is tried again, until it is let in: nothing is
// lost, and the log has the remedy.
func TestMode219RefusedLoginThatChanges(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(2, "orders"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "cdc", "secret"))
	file := filepath.Join(t.TempDir(), "password")
	must.OK(t, os.WriteFile(file, []byte("of yesterday"), 0o600))
	cfg := c.config()
	cfg.SASL = SASL{Mechanism: "PLAIN", Username: "cdc", Password: "of yesterday", Written: setting.Files{"password": {{Path: file}}}}
	w := newWitness()
	k, logs := newKafka(t, cfg, WithObserver(w))
	done := make(chan error, 1)
	go func() { done <- k.Deliver(deadline(t), events("orders", 5), noReject(t)) }()
	await.Until(t, "more refusals than a login that stays has", func() bool { return w.reconnects.Load() > 2*refusals })
	must.Contain(t, fmt.Sprint(logs.FilterMessage("cannot connect to Kafka broker, retrying").All()[0].ContextMap()["remedy"]), file)
	must.OK(t, os.WriteFile(file, []byte("secret"), 0o600))
	must.OK(t, <-done)
}

// A client certificate out of date is such a login: its files are read again.
func TestMode219RefusedCertificateThatChanges(t *testing.T) {
	ca := newAuthority(t)
	c := startCluster(t, kfake.SeedTopics(2, "orders"), kfake.TLS(&tls.Config{
		Certificates: []tls.Certificate{ca.issue(t, time.Hour, "127.0.0.1")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool,
	}))
	cfg := c.config()
	cfg.TLS.CAFile = ca.file
	cfg.TLS.CertFile, cfg.TLS.KeyFile = ca.files(t, -time.Minute)
	w := newWitness()
	k, logs := newKafka(t, cfg, WithObserver(w))
	done := make(chan error, 1)
	go func() { done <- k.Deliver(deadline(t), events("orders", 5), noReject(t)) }()
	await.Until(t, "more refusals than a login that stays has", func() bool { return w.reconnects.Load() > 2*refusals })
	must.Contain(t, fmt.Sprint(logs.FilterMessage("cannot connect to Kafka broker, retrying").All()[0].ContextMap()["remedy"]), "sink.kafka.tls.cert_file")
	cert, key := ca.files(t, time.Hour)
	must.OK(t, os.Rename(cert, cfg.TLS.CertFile))
	must.OK(t, os.Rename(key, cfg.TLS.KeyFile))
	must.OK(t, <-done)
}

// A login becomes invalid while records are on their way.
func TestMode32LoginRevokedWhileRunning(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(2, "orders"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "cdc", "secret"))
	cfg := c.config()
	cfg.SASL = SASL{Mechanism: "PLAIN", Username: "cdc", Password: "secret"}
	k, _ := newKafka(t, cfg)
	evs := events("orders", 20)
	deliver(t, k, evs[:10])
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
	c.net.fail()
	c.net.heal()
	err := k.Deliver(deadline(t), evs[10:], noReject(t))
	if failure.ClassOf(err) != failure.Config || !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Fatalf("got %v of class %d", err, failure.ClassOf(err))
	}
}

func TestMode32TLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	server := func(names ...string) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{ca.issue(t, time.Hour, names...)}}
	}
	mutual := server("127.0.0.1")
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, ca.pool
	expired := &tls.Config{Certificates: []tls.Certificate{ca.issue(t, -time.Minute, "127.0.0.1")}}
	certFile, keyFile := ca.files(t, time.Hour)

	for name, tc := range map[string]struct {
		server *tls.Config
		client TLS
		remedy string // "" for success
	}{
		"right authority":       {server("127.0.0.1"), TLS{CAFile: ca.file}, ""},
		"server name":           {server("kafka.example"), TLS{CAFile: ca.file, ServerName: "kafka.example"}, ""},
		"client certificate":    {mutual, TLS{CAFile: ca.file, CertFile: certFile, KeyFile: keyFile}, ""},
		"wrong authority":       {server("127.0.0.1"), TLS{CAFile: other.file}, "sink.kafka.tls.ca_file"},
		"system authorities":    {server("127.0.0.1"), TLS{Enabled: true}, "sink.kafka.tls.ca_file"},
		"wrong host":            {server("kafka.example"), TLS{CAFile: ca.file}, "sink.kafka.tls.server_name"},
		"expired":               {expired, TLS{CAFile: ca.file}, "renew"},
		"no client certificate": {mutual, TLS{CAFile: ca.file}, "sink.kafka.tls.cert_file"},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, kfake.SeedTopics(2, "orders"), kfake.TLS(tc.server))
			cfg := c.config()
			cfg.TLS = tc.client
			k, _ := newKafka(t, cfg)
			err := k.Deliver(deadline(t), events("orders", 5), noReject(t))
			if tc.remedy == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), tc.remedy) {
				t.Fatalf("got %v of class %d, remedy %q", err, failure.ClassOf(err), failure.RemedyOf(err))
			}
		})
	}
}

func TestTLSFilesAreReadAtTheStart(t *testing.T) {
	for name, cfg := range map[string]TLS{
		"missing": {CAFile: "/does/not/exist"},
		"no PEM":  {CAFile: "failures_test.go"},
		"no key":  {CertFile: "failures_test.go"},
	} {
		_, err := ClientOpts(Options{Brokers: []string{"localhost:9092"}, TLS: cfg})
		if failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" {
			t.Errorf("%s: %v of class %d", name, err, failure.ClassOf(err))
		}
	}
}

func TestMode33LostRecordsAreLoss(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID} {
		t.Run(err.Message, func(t *testing.T) {
			c := startCluster(t, kfake.SeedTopics(2, "orders"))
			k, _ := newKafka(t, c.config())
			c.Fault(kfake.Fault{Keys: []kmsg.Key{produce}, Err: err})
			got := k.Deliver(deadline(t), events("orders", 5), noReject(t))
			if failure.ClassOf(got) != failure.Loss || !errors.Is(got, err) || !strings.Contains(got.Error(), "orders") {
				t.Fatalf("got %v of class %d", got, failure.ClassOf(got))
			}
		})
	}
}

// A broker that speaks the protocol is no sign that events get through: only the
// answers about events are.
func TestAnsweredIsAboutEvents(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(2, "orders"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "cdc", "secret"))
	cfg := c.config()
	cfg.SASL = SASL{Mechanism: "PLAIN", Username: "cdc", Password: "secret"}
	w := newWitness()
	k, _ := newKafka(t, cfg, WithObserver(w))
	deliver(t, k, events("orders", 5))
	published := w.answers.Load()
	if published == 0 {
		t.Error("five acknowledgements are no answer")
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
	k, _ = newKafka(t, cfg, WithObserver(w))
	if err := k.Deliver(deadline(t), events("orders", 5), noReject(t)); err == nil {
		t.Fatal("delivered without a login")
	}
	if n := w.answers.Load() - published; n > 0 {
		t.Errorf("%d answers of a broker that refuses us", n)
	}
}

// A broker that takes the connection and says nothing holds up a stop no longer
// than a broker that is down.
func TestMode25CancelWhileABrokerIsSilentReturns(t *testing.T) {
	addr, asked := kafkatest.Silent(t)
	cfg := DefaultOptions()
	cfg.Brokers = []string{addr}
	k, _ := newKafka(t, *cfg)
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(stop)
	}()
	if err := k.Deliver(ctx, events("orders", 1), noReject(t)); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	k.Close()
}
