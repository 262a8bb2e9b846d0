package sink

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// HTTPS are the files of certificates for a server that is asked over HTTP. They may be
// replaced while the connector runs: each connection reads them, and takes the former
// content while the present content is of no use.
type HTTPS struct {
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"`
}

func (h HTTPS) tls() *TLS {
	return &TLS{CAFile: h.CAFile, CertFile: h.CertFile, KeyFile: h.KeyFile, ServerName: h.ServerName}
}

// Validate reports faults of the options under the keys with the prefix.
func (h HTTPS) Validate(report setting.Report, prefix string) { h.tls().Validate(report, prefix) }

// Check returns why no connection can be made with the files.
func (h HTTPS) Check(prefix string) error {
	_, err := presentTLS(*h.tls(), prefix)
	return err
}

// Present returns why the present content of the files is of no use.
func (h HTTPS) Present(prefix string) error {
	_, err := clientTLS(*h.tls(), prefix)
	return err
}

// Transport has proxies of the environment. The caller may change it before its use.
func (h HTTPS) Transport(prefix string) *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conf, err := presentTLS(*h.tls(), prefix)
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{Config: conf}).DialContext(ctx, network, addr)
		},
	}
}
