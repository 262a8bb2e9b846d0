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
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
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
		{kerr.InvalidTimestamp, badRecord},
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
		err := fatal(tc.err, cfg, "orders")
		if !errors.Is(err, tc.err) || !strings.HasPrefix(err.Error(), `write to topic "orders": `) {
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
		kerr.InvalidTimestamp:      transform.ReasonInvalidTimestamp,
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
		remedy string // a part of it; "" for not refused
	}{
		{kerr.SaslAuthenticationFailed, "sink.kafka.sasl"},
		{kerr.UnsupportedSaslMechanism, "sink.kafka.sasl.mechanism"},
		{kerr.IllegalSaslState, "remove sink.kafka.sasl"},
		{&loginCut{io.EOF}, "sink.kafka.sasl"},
		{dial(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), "sink.kafka.tls.ca_file"},
		{dial(&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: new(x509.Certificate)}}), "sink.kafka.tls.server_name"},
		{dial(x509.CertificateInvalidError{Reason: x509.Expired}), "renew"},
		{dial(x509.CertificateInvalidError{Reason: x509.IncompatibleUsage}), "valid for a server"},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, "sink.kafka.tls.cert_file"},
		{dial(tls.RecordHeaderError{Msg: "not TLS"}), "remove sink.kafka.tls"},
		{errors.New("appear to be a tls alert record for TLS v1.2"), "sink.kafka.tls.enabled"},
		{failure.Configf("fix it", "broken"), "fix it"},

		{nil, ""},
		{dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), ""},
		{dial(&net.DNSError{IsNotFound: true}), ""},
		{io.EOF, ""},
		{context.Canceled, ""},
		{kerr.NotController, ""},
	} {
		remedy, ok := refused(tc.err)
		if ok != (tc.remedy != "") || !strings.Contains(remedy, tc.remedy) {
			t.Errorf("%v: %v, %q", tc.err, ok, remedy)
		}
	}
}
