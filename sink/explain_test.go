package sink

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
)

// A broker that is spoken to in the wrong way gives no reason. The remedy says
// what may be the matter, and not that a broker should be started.
func TestRemedyOfABrokerThatGivesNoReason(t *testing.T) {
	silent, _ := kafkatest.Silent(t)
	for name, tc := range map[string]struct {
		brokers []string
		tls     TLS
		remedy  string
	}{
		"a login is missing": {brokers: startCluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "p")).config().Brokers,
			remedy: "it may want a login (set sink.kafka.sasl)"},
		"TLS to a plaintext broker, which hangs up": {brokers: []string{hangsUp(t)}, tls: TLS{Enabled: true}, remedy: "or remove sink.kafka.tls"},
		"TLS to a plaintext broker, which waits":    {brokers: []string{silent}, tls: TLS{Enabled: true}, remedy: "their listeners must speak TLS"},
		"plain text to what hangs up":               {brokers: []string{hangsUp(t)}, remedy: "or TLS (set sink.kafka.tls.enabled)"},
		"nobody listens":                            {brokers: []string{"127.0.0.1:1"}, remedy: "start a broker"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := *DefaultOptions()
			cfg.Brokers, cfg.TLS = tc.brokers, tc.tls
			p, err := NewProbe(cfg, UsualPace)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			err = p.once(t.Context())
			if err == nil || !strings.Contains(failure.RemedyOf(err), tc.remedy) {
				t.Errorf("error %v, remedy %q", err, failure.RemedyOf(err))
			}
			if failure.ClassOf(err) != failure.Transient {
				t.Errorf("class %v: it may as well be a restart", failure.ClassOf(err))
			}
		})
	}
}

// What a remedy says follows from the error and from what we speak.
func TestRemedyOfAbsence(t *testing.T) {
	login := SASL{Mechanism: "PLAIN"}
	for name, tc := range map[string]struct {
		err    error
		sasl   SASL
		remedy string
	}{
		"a login is given, and the broker hangs up": {io.EOF, login, "or refuse the login of sink.kafka.sasl"},
		"the name service is not up, or the name is wrong": {
			fmt.Errorf("unable to dial: %w", &net.DNSError{Name: "kafka"}), login, "correct sink.kafka.brokers (kafka:9092), or wait for the name service"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Options{Brokers: []string{"kafka:9092"}, SASL: tc.sasl}
			if got := absenceRemedy(cfg, tc.err); !strings.Contains(got, tc.remedy) {
				t.Errorf("%q lacks %q", got, tc.remedy)
			}
		})
	}
}

// hangsUp is the address of what ends each connection after the first bytes.
func hangsUp(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1<<10))
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
	})
	return l.Addr().String()
}
