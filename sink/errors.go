package sink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// verdict is the meaning of a client's error for the failed records.
type verdict uint8

const (
	// passing errors are retried. The client itself retries the errors known to
	// it, so these are unknown ones and errors of a connection. A final refusal of
	// a connection ends the delivery in another way, see connections.
	passing verdict = iota
	// badRecord: the broker will never take the record, or another of the batch.
	badRecord
	// untimely: the broker does not take the time of a record. The event is sound.
	untimely
	// topicGone: the topic must be resolved again.
	topicGone
	// misconfigured: only a change of configuration or privileges helps.
	misconfigured
	// lossy: the broker lost records, or another took over its sequence.
	lossy
	// closed: the client was closed during the delivery.
	closed
)

// verdicts are those of the errors that the client returns for a record. Kafka's
// protocol guide explains each. franz-go never returns an error it retries.
var verdicts = map[*kerr.Error]verdict{
	kerr.MessageTooLarge:    badRecord,
	kerr.RecordListTooLarge: badRecord,
	kerr.InvalidRecord:      badRecord,
	kerr.InvalidTimestamp:   untimely,
	kerr.PolicyViolation:    badRecord,
	// Brokers before 2.4 refuse a record without a key on a compacted topic
	// with CORRUPT_MESSAGE.
	kerr.CorruptMessage:        badRecord,
	kerr.InvalidTopicException: badRecord,

	kerr.UnknownTopicOrPartition: topicGone,
	kerr.UnknownTopicID:          topicGone,

	kerr.TopicAuthorizationFailed:           misconfigured,
	kerr.ClusterAuthorizationFailed:         misconfigured,
	kerr.TransactionalIDAuthorizationFailed: misconfigured,
	kerr.UnsupportedCompressionType:         misconfigured,
	kerr.UnsupportedForMessageFormat:        misconfigured,
	kerr.UnsupportedVersion:                 misconfigured,
	kerr.InvalidRequiredAcks:                misconfigured,

	kerr.OutOfOrderSequenceNumber: lossy,
	kerr.UnknownProducerID:        lossy,
	kerr.InvalidProducerIDMapping: lossy,
	kerr.InvalidProducerEpoch:     lossy,
	kerr.ProducerFenced:           lossy,
}

// judge returns the verdict on a record's error from the client.
func judge(err error) verdict {
	if kafka, ok := errors.AsType[*kerr.Error](err); ok {
		return verdicts[kafka]
	}
	if loss, ok := errors.AsType[*kgo.ErrDataLoss](err); ok && loss != nil {
		return lossy
	}
	if errors.Is(err, kgo.ErrClientClosed) {
		return closed
	}
	return passing
}

// badEvent returns why the broker refused the record.
func badEvent(err error) *transform.BadEvent {
	reason := transform.ReasonRejectedByBroker
	switch {
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		reason = transform.ReasonRecordTooLarge
	case errors.Is(err, kerr.InvalidTopicException):
		reason = transform.ReasonIllegalTopic
	}
	return &transform.BadEvent{Reason: reason, Err: fmt.Errorf("the broker refuses the record: %w", err)}
}

// badEvent is the function badEvent for a topic, with the topic's setting as remedy.
func (k *Kafka) badEvent(topic string, err error) *transform.BadEvent {
	bad := badEvent(err)
	if bad.Reason == transform.ReasonRecordTooLarge {
		bad.Err = failure.Configf(k.cfg.Tools().Set(topic, fmt.Sprint(MaxMessageBytes, "=", k.cfg.MaxRecordBytes)), "%w", bad.Err)
	}
	return bad
}

// fatal returns the error that ends the delivery after a refused batch.
func (k *Kafka) fatal(s *batch) error {
	rec := &s.events[0].Record
	err := fmt.Errorf("write to topic %q, partition %d: %w", rec.Topic, rec.Partition, s.err)
	switch judge(err) {
	case misconfigured:
		return &failure.Error{Class: failure.Config, Remedy: writeRemedy(err, k.cfg, rec.Topic), Err: err}
	case lossy:
		end := int64(0)
		if acked := k.acked[rec.Topic]; acked != nil {
			end = acked.end(rec.Partition)
		}
		at := s.events[0].Position
		return failure.Lossf(lossRemedy, "%w; it was event %s (LSN %s, index %d), and offsets before %d were acknowledged",
			err, s.events[0].Name(), at.CommitLSN, at.Seq, end)
	}
	return err
}

const lossRemedy = "the broker no longer has records that it had acknowledged, or another producer took over: " +
	"look for an unclean leader election or a restored broker, compare the topic's end with the outbox table " +
	"by the headers id and cdc-lsn, and publish again what is missing; then " + catalog.AcceptGap

func writeRemedy(err error, cfg Options, topic string) string {
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return cfg.Tools().Allow("Write --operation Describe", topic)
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return cfg.Tools().Allow("IdempotentWrite", "")
	case errors.Is(err, kerr.UnsupportedCompressionType), errors.Is(err, kerr.UnsupportedForMessageFormat):
		return fmt.Sprintf("set sink.kafka.compression to a codec that the broker takes (now %s)", cfg.Compression)
	}
	return "use a broker of Kafka 0.11 or later that takes idempotent writes with acks=all"
}

// refused reports whether an error of a connection attempt will come again
// until somebody changes credentials, certificates or the configuration, and
// returns the remedy.
func refused(cfg Options, err error) (remedy string, ok bool) {
	if failure.ClassOf(err) == failure.Config {
		return failure.RemedyOf(err), true
	}
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return "", false
	}
	if remedy, ok := refusedLogin(cfg.SASL, err); ok {
		return remedy, true
	}
	return refusedCertificate(cfg.TLS, err)
}

// turnedAway reports whether a broker refuses the credentials of a login.
func turnedAway(err error) bool {
	_, cut := errors.AsType[*loginCut](err)
	return cut || errors.Is(err, kerr.SaslAuthenticationFailed)
}

func refusedLogin(cfg SASL, err error) (remedy string, ok bool) {
	switch {
	case turnedAway(err):
		return loginRemedy(cfg), true
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return "set sink.kafka.sasl.mechanism to one that the broker offers on this listener", true
	case errors.Is(err, kerr.IllegalSaslState):
		return "the listener does not take SASL: use another port in sink.kafka.brokers, or remove sink.kafka.sasl", true
	}
	return "", false
}

// identityRemedies are the clouds' names for the right.
var identityRemedies = map[string]string{
	identityAzure:  ", with the role Azure Event Hubs Data Sender or Owner",
	identityGoogle: ", with the role roles/managedkafka.client",
}

// loginRemedy is for refused credentials, and names their source.
func loginRemedy(s SASL) string {
	const takes = "the brokers' log has the reason: issuer, audience, scopes, end or clock"
	switch {
	case len(s.Written) > 0 && s.TokenURL == "": // else the files are for the token endpoint
		return s.Written.Rotation()
	case s.Mechanism == mechanismAWS && s.AccessKey != "":
		return "allow kafka-cluster:Connect to the owner of the access key " + s.AccessKey + " (sink.kafka.sasl.access_key), and compare the clocks"
	case s.Mechanism == mechanismAWS:
		return "allow kafka-cluster:Connect to the workload's role (sink.kafka.sasl.access_key is empty), and compare the clocks"
	case s.Mechanism == mechanismOAuth && s.TokenURL != "":
		return "have the brokers take the tokens of " + s.grant().String() + ", or correct sink.kafka.sasl: " + takes
	case s.Mechanism == mechanismOAuth && s.Identity != "":
		return "have the brokers take the tokens of the workload's identity (sink.kafka.sasl.identity: " + s.Identity + ")" +
			identityRemedies[s.Identity] + ": " + takes
	case s.Mechanism == mechanismOAuth:
		return "have the brokers take the token of sink.kafka.sasl.token, or replace it: " + takes
	}
	return "check the credentials under sink.kafka.sasl, and that the broker knows them"
}

func refusedCertificate(cfg TLS, err error) (remedy string, ok bool) {
	if _, is := errors.AsType[x509.UnknownAuthorityError](err); is {
		return "set sink.kafka.tls.ca_file to the certificate of the authority that signed the broker's", true
	}
	if _, is := errors.AsType[x509.HostnameError](err); is {
		return "list the broker in sink.kafka.brokers under a name that its certificate has, or set sink.kafka.tls.server_name", true
	}
	if invalid, is := errors.AsType[x509.CertificateInvalidError](err); is {
		switch ca := invalid.Cert != nil && invalid.Cert.IsCA; {
		case invalid.Reason == x509.Expired && ca:
			return "put the authority's present certificate into sink.kafka.tls.ca_file, or renew it at the broker, and check this machine's clock: " +
				"that of " + invalid.Cert.Subject.String() + " is valid until " + invalid.Cert.NotAfter.UTC().Format(time.RFC3339), true
		case invalid.Reason == x509.Expired:
			return "renew the broker's certificate, and check this machine's clock", true
		}
		return "give the broker a certificate that is valid for a server", true
	}
	if ended, ofCertificate := alerted(err); ended {
		return alertRemedy(cfg, ofCertificate), true
	}
	if _, is := errors.AsType[tls.RecordHeaderError](err); is {
		return "the listener does not speak TLS: use another port in sink.kafka.brokers, or remove sink.kafka.tls", true
	}
	// franz-go recognises a TLS alert in answer to plain text, but has no type
	// for it.
	if strings.Contains(err.Error(), "tls alert record") {
		return "the listener wants TLS: set sink.kafka.tls.enabled, or use another port in sink.kafka.brokers", true
	}
	return "", false
}

// alerted reports whether the broker ended the TLS handshake with an alert, and whether the
// alert is about a missing or refused client certificate (RFC 8446, section 6.2):
// bad_certificate to certificate_unknown, unknown_ca, access_denied, certificate_required.
// crypto/tls hands up the peer's alerts in this wrapping, with a number as the error, of a type
// without a name.
func alerted(err error) (ok, ofCertificate bool) {
	op, is := errors.AsType[*net.OpError](err)
	if !is || op.Op != "remote error" {
		return false, false
	}
	switch fmt.Sprintf("%d", op.Err) {
	case "42", "43", "44", "45", "46", "48", "49", "116":
		return true, true
	}
	return true, false
}

func alertRemedy(cfg TLS, ofCertificate bool) string {
	const ended = "the broker ended the TLS handshake: "
	switch {
	case !ofCertificate:
		return ended + "its log has the reason; it may want another version of TLS than 1.2 or 1.3, or another sink.kafka.tls.server_name, " +
			"or a client certificate (sink.kafka.tls.cert_file)"
	case cfg.CertFile == "":
		return ended + "set sink.kafka.tls.cert_file and key_file to a client certificate that it trusts"
	}
	return ended + "put a certificate that it trusts and that has not expired into the files of " +
		"sink.kafka.tls.cert_file and key_file, which are read again at each attempt"
}

// renews reports whether an attempt after the refusal err may have other credentials.
func (o *Options) renews(err error) bool {
	_, ofCertificate := alerted(err)
	return o.SASL.renews(err) || o.TLS.CertFile != "" && ofCertificate
}

// passingRefusal is the error of credentials refused for now.
type passingRefusal struct{ err error }

// Error implements error.
func (r *passingRefusal) Error() string { return r.err.Error() }

// Unwrap returns the broker's answer.
func (r *passingRefusal) Unwrap() error { return r.err }

// isRefusal reports whether brokers refuse the connector, for good or for now.
func isRefusal(err error) bool {
	_, passing := errors.AsType[*passingRefusal](err)
	return passing || failure.ClassOf(err) == failure.Config
}

// Unreachable gives the error of a connection, or of a request without an answer, a
// failure.Class and a remedy: after a final refusal by a broker (login and certificates) of
// class Config.
func Unreachable(cfg Options, err error) error {
	remedy, ok := refused(cfg, err)
	switch {
	case ok && cfg.renews(err):
		return &failure.Error{Class: failure.Transient, Remedy: remedy, Err: &passingRefusal{err}}
	case ok:
		return failure.Configf(remedy, "%w", err)
	}
	if failure.ClassOf(err) != failure.Transient || failure.RemedyOf(err) != "" {
		return err
	}
	return &failure.Error{Class: failure.Transient, Remedy: absenceRemedy(cfg, err), Err: err}
}

// absenceRemedy is the remedy for a cluster that does not answer. A broker
// addressed in an unexpected protocol gives no reason: it hangs up, or waits for
// the rest of a supposed request. So the possible faults follow from our own
// protocol.
func absenceRemedy(cfg Options, err error) string {
	brokers := "sink.kafka.brokers (" + strings.Join(cfg.Brokers, ", ") + ")"
	plain := cfg.TLS == TLS{}
	if _, ok := errors.AsType[*unadvertised](err); ok {
		return "give the broker advertised.listeners with an address that can be reached from here, on the listener that is in " + brokers
	}
	if hungUp(err) {
		switch {
		case !plain:
			return "the broker hangs up: name a listener that speaks TLS in " + brokers + ", or remove sink.kafka.tls; " +
				"or it has as many connections as it allows (max.connections, max.connections.per.ip)"
		case cfg.SASL.Mechanism == "":
			return "the broker hangs up: it may want a login (set sink.kafka.sasl) or TLS (set sink.kafka.tls.enabled), " +
				"or have as many connections as it allows (max.connections, max.connections.per.ip); or name another listener in " + brokers
		default:
			return "the broker hangs up: it may want TLS (set sink.kafka.tls.enabled) or refuse the login of sink.kafka.sasl, " +
				"or have as many connections as it allows (max.connections, max.connections.per.ip); " +
				"or name another listener in " + brokers
		}
	}
	if _, unknown := errors.AsType[*net.DNSError](err); unknown {
		return "correct " + brokers + ", or wait for the name service"
	}
	remedy := "start a broker, or correct " + brokers
	if !plain {
		remedy += "; their listeners must speak TLS, as sink.kafka.tls is set"
	}
	return remedy
}

// hungUp reports whether a broker ended the connection. The client's error for an
// end during a request has no exported name: it is retryable, and no error of the
// network, which has a Timeout method.
func hungUp(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, net.ErrClosed} {
		if errors.Is(err, end) {
			return true
		}
	}
	_, network := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return kgo.IsRetryableBrokerErr(err) && !network
}
