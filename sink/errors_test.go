package sink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want verdict
	}{
		{kerr.MessageTooLarge, badRecord},
		{fmt.Errorf("%w (uncompressed_bytes=7)", kerr.MessageTooLarge), badRecord},
		{kerr.RecordListTooLarge, badRecord},
		{kerr.InvalidRecord, badRecord},
		{kerr.InvalidTimestamp, untimely},
		{kerr.CorruptMessage, badRecord},
		{kerr.PolicyViolation, badRecord},
		{kerr.InvalidTopicException, badRecord},
		{kerr.UnknownTopicOrPartition, topicGone},
		{kerr.UnknownTopicID, topicGone},
		{kerr.TopicAuthorizationFailed, misconfigured},
		{kerr.ClusterAuthorizationFailed, misconfigured},
		{kerr.TransactionalIDAuthorizationFailed, misconfigured},
		{kerr.UnsupportedCompressionType, misconfigured},
		{kerr.UnsupportedVersion, misconfigured},
		{kerr.OutOfOrderSequenceNumber, lossy},
		{kerr.UnknownProducerID, lossy},
		{kerr.InvalidProducerEpoch, lossy},
		{&kgo.ErrDataLoss{Topic: "t"}, lossy},
		{kgo.ErrClientClosed, closed},
		{kerr.UnknownServerError, passing},
		{kerr.NotEnoughReplicas, passing},
		{kerr.SaslAuthenticationFailed, passing}, // connections decides
		{io.EOF, passing},
		{errors.New("invalid record partitioning choice of 4 from 3 available"), passing},
	} {
		if got := judge(tc.err); got != tc.want {
			t.Errorf("%v: verdict %d, want %d", tc.err, got, tc.want)
		}
	}
}

func TestFatalSaysWhatToDo(t *testing.T) {
	cfg := Options{Brokers: []string{"kafka:9092"}, Compression: "zstd", SASL: SASL{Username: "cdc"}}
	for _, tc := range []struct {
		err    error
		class  failure.Class
		remedy string
	}{
		{kerr.TopicAuthorizationFailed, failure.Config,
			"kafka-acls.sh --bootstrap-server kafka:9092 --add --allow-principal 'User:cdc' --operation Write --operation Describe --topic 'orders'"},
		{kerr.ClusterAuthorizationFailed, failure.Config,
			"kafka-acls.sh --bootstrap-server kafka:9092 --add --allow-principal 'User:cdc' --operation IdempotentWrite --cluster"},
		{kerr.UnsupportedCompressionType, failure.Config, "set sink.kafka.compression to a codec that the broker takes (now zstd)"},
		{kerr.UnsupportedVersion, failure.Config, "use a broker of Kafka 0.11 or later that takes idempotent writes with acks=all"},
		{kerr.OutOfOrderSequenceNumber, failure.Loss, lossRemedy},
		{kgo.ErrClientClosed, failure.Transient, ""},
	} {
		err := (&Kafka{cfg: cfg}).fatal(&batch{events: []placed{{Event: event("orders", "a", 0, 1)}}, err: tc.err})
		if !errors.Is(err, tc.err) || !strings.HasPrefix(err.Error(), `write to topic "orders", partition 0: `) {
			t.Errorf("%v became %v", tc.err, err)
		}
		if failure.ClassOf(err) != tc.class || failure.RemedyOf(err) != tc.remedy {
			t.Errorf("%v: class %d, remedy %q", err, failure.ClassOf(err), failure.RemedyOf(err))
		}
	}
}

func TestBadEventReason(t *testing.T) {
	for err, want := range map[error]transform.Reason{
		kerr.MessageTooLarge:       transform.ReasonRecordTooLarge,
		kerr.RecordListTooLarge:    transform.ReasonRecordTooLarge,
		kerr.InvalidTopicException: transform.ReasonIllegalTopic,
		kerr.InvalidRecord:         transform.ReasonRejectedByBroker,
	} {
		if bad := badEvent(err); bad.Reason != want || !errors.Is(bad, err) {
			t.Errorf("%v: %v", err, bad)
		}
	}
}

func TestRefused(t *testing.T) {
	dial := func(err error) error {
		return fmt.Errorf("unable to dial: %w", &net.OpError{Op: "dial", Err: err})
	}
	for _, tc := range []struct {
		err    error
		remedy string // a part; "" for not refused
	}{
		{kerr.SaslAuthenticationFailed, "sink.kafka.sasl"},
		{kerr.UnsupportedSaslMechanism, "sink.kafka.sasl.mechanism"},
		{kerr.IllegalSaslState, "remove sink.kafka.sasl"},
		{&loginCut{io.EOF}, "sink.kafka.sasl"},
		{dial(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), "sink.kafka.tls.ca_file"},
		{dial(&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: new(x509.Certificate)}}), "sink.kafka.tls.server_name"},
		{dial(x509.CertificateInvalidError{Reason: x509.Expired}), "renew"},
		{dial(x509.CertificateInvalidError{Reason: x509.IncompatibleUsage}), "valid for a server"},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(42)}, "set sink.kafka.tls.cert_file"},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(70)}, "another version of TLS"},
		{dial(tls.RecordHeaderError{Msg: "not TLS"}), "remove sink.kafka.tls"},
		{errors.New("appear to be a tls alert record for TLS v1.2"), "sink.kafka.tls.enabled"},
		{failure.Configf("fix it", "broken"), "fix it"},

		{nil, ""},
		{dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), ""},
		{dial(&net.DNSError{IsNotFound: true}), ""},
		{io.EOF, ""},
		{context.Canceled, ""},
		{x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}, "renew the broker's certificate"},
		{x509.CertificateInvalidError{Cert: &x509.Certificate{IsCA: true}, Reason: x509.Expired}, "present certificate into sink.kafka.tls.ca_file"},
		{kerr.NotController, ""},
	} {
		remedy, ok := refused(Options{}, tc.err)
		if ok != (tc.remedy != "") || !strings.Contains(remedy, tc.remedy) {
			t.Errorf("%v: %v, %q", tc.err, ok, remedy)
		}
	}
}

// A client certificate may be replaced; a version of TLS, or a certificate that is not configured,
// takes another configuration.
func TestRefusedClientCertificateMayPass(t *testing.T) {
	for _, tc := range []struct {
		certFile string
		alert    tls.AlertError
		want     failure.Class
	}{
		{"client.pem", 45, failure.Transient},
		{"client.pem", 116, failure.Transient},
		{"client.pem", 70, failure.Config},
		{"", 116, failure.Config},
	} {
		err := Unreachable(Options{TLS: TLS{CertFile: tc.certFile}}, fmt.Errorf("dial: %w", &net.OpError{Op: "remote error", Err: tc.alert}))
		if got := failure.ClassOf(err); got != tc.want || !isRefusal(err) || failure.RemedyOf(err) == "" {
			t.Errorf("%v with %q: class %d, want %d, remedy %q", tc.alert, tc.certFile, got, tc.want, failure.RemedyOf(err))
		}
	}
}

// A broker addressed in the wrong protocol gives no reason. The remedy names the
// possible causes, not the start of a broker.
func TestRemedyOfABrokerThatGivesNoReason(t *testing.T) {
	silent, _ := kafkatest.Silent(t)
	hangsUp := testserver.Serve(t, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1<<10)) })
	for name, tc := range map[string]struct {
		brokers []string
		tls     TLS
		remedy  string
	}{
		"a login is missing": {brokers: startCluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "p")).config().Brokers,
			remedy: "it may want a login (set sink.kafka.sasl)"},
		"TLS to a plaintext broker, which hangs up": {brokers: []string{hangsUp}, tls: TLS{Enabled: true}, remedy: "or remove sink.kafka.tls"},
		"TLS to a plaintext broker, which waits":    {brokers: []string{silent}, tls: TLS{Enabled: true}, remedy: "their listeners must speak TLS"},
		"plain text to what hangs up":               {brokers: []string{hangsUp}, remedy: "or TLS (set sink.kafka.tls.enabled)"},
		"nobody listens":                            {brokers: []string{"127.0.0.1:1"}, remedy: "start a broker"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := *DefaultOptions()
			cfg.Brokers, cfg.TLS = tc.brokers, tc.tls
			p := must.Get(NewProbe(cfg, UsualPace))(t)
			defer p.Close()
			_, err := p.once(t.Context())
			if err == nil || !strings.Contains(failure.RemedyOf(err), tc.remedy) {
				t.Errorf("error %v, remedy %q", err, failure.RemedyOf(err))
			}
			if failure.ClassOf(err) != failure.Transient {
				t.Errorf("class %v: it may as well be a restart", failure.ClassOf(err))
			}
		})
	}
}

// diedUnderARequest is like the client's unexported error.
type diedUnderARequest struct{}

func (diedUnderARequest) Error() string   { return "the broker connection has died" }
func (diedUnderARequest) Temporary() bool { return true }

// A remedy follows from the error and from our protocol.
func TestRemedyOfAbsence(t *testing.T) {
	login := SASL{Mechanism: "PLAIN"}
	for name, tc := range map[string]struct {
		err    error
		sasl   SASL
		remedy string
	}{
		"a login is given, and the broker hangs up":      {io.EOF, login, "or refuse the login of sink.kafka.sasl"},
		"the broker may have too many connections":       {io.EOF, SASL{}, "max.connections.per.ip"},
		"the connection ends under a request":            {diedUnderARequest{}, SASL{}, "the broker hangs up: it may want a login"},
		"the broker takes nothing until a deadline ends": {context.DeadlineExceeded, SASL{}, "start a broker"},
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
