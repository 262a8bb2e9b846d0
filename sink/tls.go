package sink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

const dialTimeout = 10 * time.Second

// dialFunc is the type of kgo.Dialer's argument.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer returns how to connect to a broker. With TLS the files are read anew
// for every connection, so that renewed certificates need no restart; they are
// read once here, so that a wrong one is found at the start.
func dialer(cfg TLS) (dialFunc, error) {
	plain := &net.Dialer{Timeout: dialTimeout}
	if cfg == (TLS{}) {
		return plain.DialContext, nil
	}
	if _, err := clientTLS(cfg); err != nil {
		return nil, err
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conf, err := clientTLS(cfg)
		if err != nil {
			return nil, err
		}
		d := tls.Dialer{NetDialer: plain, Config: conf}
		return d.DialContext(ctx, network, addr)
	}, nil
}

// clientTLS reads the files that cfg names. tls.Dialer fills in the server name
// from the address where cfg has none.
func clientTLS(cfg TLS) (*tls.Config, error) {
	conf := &tls.Config{ServerName: cfg.ServerName, MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, failure.Configf("make the file readable for the connector, or correct sink.kafka.tls.ca_file",
				"read sink.kafka.tls.ca_file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, failure.Configf("put the certificate authority's certificate into the file in PEM form",
				"sink.kafka.tls.ca_file %s holds no certificate", cfg.CAFile)
		}
	}
	if cfg.CertFile != "" || cfg.KeyFile != "" {
		cert, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, failure.Configf("set sink.kafka.tls.cert_file and key_file to a certificate and its key, both in PEM form",
				"load sink.kafka.tls.cert_file and key_file: %w", err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	return conf, nil
}
