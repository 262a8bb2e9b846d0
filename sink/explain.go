package sink

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// Explain gives the error of a client made with ClientOpts its failure.Class
// and remedy where a broker refused it for good: login and certificates. Other
// errors are returned as they are.
func Explain(err error) error {
	if remedy, ok := refused(err); ok {
		return failure.Configf(remedy, "%w", err)
	}
	return err
}

// Unreachable is Explain for the error of a connection or a request that no
// broker answered. What may pass gets a remedy too.
func Unreachable(cfg Options, err error) error {
	err = Explain(err)
	if failure.ClassOf(err) != failure.Transient || failure.RemedyOf(err) != "" {
		return err
	}
	return &failure.Error{Class: failure.Transient, Remedy: absenceRemedy(cfg, err), Err: err}
}

// absenceRemedy is what to do about a cluster that does not answer. A broker
// that is spoken to in another protocol than it expects gives no reason: it
// hangs up, or waits for the rest of what it takes for a request. So what may be
// wrong follows from what we speak.
func absenceRemedy(cfg Options, err error) string {
	brokers := "sink.kafka.brokers (" + strings.Join(cfg.Brokers, ", ") + ")"
	plain := cfg.TLS == TLS{}
	if _, ok := errors.AsType[*unadvertised](err); ok {
		return "give the broker advertised.listeners with an address that can be reached from here, on the listener that is in " + brokers
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		switch {
		case !plain:
			return "the broker hangs up: name a listener that speaks TLS in " + brokers + ", or remove sink.kafka.tls"
		case cfg.SASL.Mechanism == "":
			return "the broker hangs up: it may want a login (set sink.kafka.sasl) or TLS (set sink.kafka.tls.enabled); " +
				"or name another listener in " + brokers
		default:
			return "the broker hangs up: it may want TLS (set sink.kafka.tls.enabled) or refuse the login of sink.kafka.sasl; " +
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
