package sink

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

const dialTimeout = 10 * time.Second

// dialer returns a function that connects to a broker. With TLS the files are
// read anew for every connection, as presentTLS does; dialer also reads them once,
// to find errors at the start. Nothing is written without the lease; a nil lease is
// always held.
func dialer(cfg TLS, held *lease.Lease) (broker.DialFunc, error) {
	plain := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialPlain(ctx, network, addr, held)
	}
	if cfg == (TLS{}) {
		return plain, nil
	}
	if _, err := presentTLS(cfg, tlsPrefix); err != nil {
		return nil, err
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conf, err := presentTLS(cfg, tlsPrefix)
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

// formerTLS are by their files.
var formerTLS setting.Former[TLS, *tls.Config]

// presentTLS is clientTLS, or the last useful contents of the same files.
func presentTLS(cfg TLS, prefix string) (*tls.Config, error) {
	conf, err := formerTLS.Or(cfg, func() (*tls.Config, error) { return clientTLS(cfg, prefix) })
	if err != nil {
		return nil, err
	}
	return conf.Clone(), nil
}

// clientTLS reads the files named in cfg, by keys with the prefix. Where cfg has no server
// name, the dialer takes it from the address.
func clientTLS(cfg TLS, prefix string) (*tls.Config, error) {
	conf := &tls.Config{ServerName: cfg.ServerName, MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		content, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, failure.Configf("make the file readable for the connector, or correct "+prefix+"ca_file",
				"read %sca_file: %w", prefix, err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !whole(content) || !conf.RootCAs.AppendCertsFromPEM(content) {
			return nil, failure.Configf("put the certificate authority's certificate into the file in PEM form",
				"%sca_file %s holds no certificate, or a part of one", prefix, cfg.CAFile)
		}
	}
	if cfg.CertFile != "" || cfg.KeyFile != "" {
		cert, err := pair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, failure.Configf("set "+prefix+"cert_file and key_file to a certificate and its key, both in PEM form",
				"load %scert_file and key_file: %w", prefix, err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	return conf, nil
}

// pair reads a client's certificate and its key.
func pair(certFile, keyFile string) (none tls.Certificate, err error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return none, err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return none, err
	}
	if !whole(cert) {
		return none, fmt.Errorf("%s ends in the middle of a certificate", certFile)
	}
	return tls.X509KeyPair(cert, key)
}

// whole reports whether each block of a PEM file has its end: libraries pass over a
// last block without an end, as in a file during its replacement.
func whole(content []byte) bool {
	return bytes.Count(content, []byte("-----BEGIN ")) == bytes.Count(content, []byte("-----END "))
}
