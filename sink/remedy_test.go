package sink

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestACLCommandsNameTheConnector(t *testing.T) {
	cert, key := newAuthority(t).files(t, time.Hour)
	for want, cfg := range map[string]Options{
		"User:cdc":         {SASL: SASL{Mechanism: "PLAIN", Username: "cdc"}, TLS: TLS{CertFile: cert, KeyFile: key}},
		"User:<principal>": {SASL: SASL{Mechanism: mechanismOAuth}},
		"User:ANONYMOUS":   {TLS: TLS{Enabled: true}},
		"User:CN=test":     {TLS: TLS{CertFile: cert, KeyFile: key}},
	} {
		if got := cfg.Tools().Allow("Read", "t"); !strings.Contains(got, "--allow-principal '"+want+"' ") {
			t.Errorf("%q names another than %s", got, want)
		}
	}
}

// The certificate may have been replaced since the start.
func TestCertificateIsReadForAnACLCommandOnly(t *testing.T) {
	cert, key := newAuthority(t).files(t, time.Hour)
	tools := (&Options{TLS: TLS{CertFile: cert, KeyFile: key}}).Tools()
	must.OK(t, os.Remove(cert))
	if got := tools.Allow("Read", "t"); !strings.Contains(got, "'User:<principal>'") {
		t.Errorf("%q has a certificate that is gone", got)
	}
}
