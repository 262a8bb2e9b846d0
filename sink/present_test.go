package sink

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Files with certificates are taken once they are whole and belong together; until then the
// former contents are in use, also by a client made anew.
func TestCertificatesAreReadAgain(t *testing.T) {
	a := newAuthority(t)
	cfg := TLS{CAFile: a.file}
	cfg.CertFile, cfg.KeyFile = a.files(t, time.Hour)
	first := leaf(t, cfg)
	newCert, newKey := a.files(t, 2*time.Hour)
	for name, broken := range map[string]map[string][]byte{
		"only the certificate is new":     {cfg.CertFile: content(t, newCert)},
		"half of a certificate":           {cfg.CertFile: content(t, newCert)[:200]},
		"a chain that ends in the middle": {cfg.CertFile: append(content(t, cfg.CertFile), content(t, newCert)[:200]...)},
		"an empty key":                    {cfg.KeyFile: nil},
		"an authority cut short":          {cfg.CAFile: append(content(t, a.file), content(t, newCert)[:100]...)},
		"no authority":                    {cfg.CAFile: nil},
	} {
		t.Run(name, func(t *testing.T) {
			for file, text := range broken {
				former := content(t, file)
				must.OK(t, os.WriteFile(file, text, 0o600))
				defer func() { must.OK(t, os.WriteFile(file, former, 0o600)) }()
			}
			o := Options{TLS: cfg}
			if got := leaf(t, cfg); got != first {
				t.Errorf("connections have the certificate %s", got)
			}
			troubles := o.Present()
			if len(troubles) != 1 || failure.RemedyOf(troubles[0]) == "" {
				t.Errorf("troubles %v", troubles)
			}
			must.Get(dialer(cfg, nil))(t)
			must.OK(t, HTTPS{CAFile: cfg.CAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile}.Check(tlsPrefix))
		})
	}
	must.OK(t, os.Rename(newCert, cfg.CertFile))
	must.OK(t, os.Rename(newKey, cfg.KeyFile))
	if got := leaf(t, cfg); got == first {
		t.Error("the new certificate is not in use")
	}
	if troubles := (&Options{TLS: cfg}).Present(); troubles != nil {
		t.Error(troubles)
	}
}

// A file that never was of use ends the start.
func TestCertificatesOfTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	must.OK(t, os.WriteFile(file, []byte("-----BEGIN CERTIFICATE-----\n"), 0o600))
	if _, err := dialer(TLS{CAFile: file}, nil); failure.ClassOf(err) != failure.Config {
		t.Errorf("got %v", err)
	}
}

// Passwords and tokens are read at each login. An empty or missing file leaves the former.
func TestLoginsAreReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	written := setting.Written{{Text: "pre-"}, {Path: file, Shown: "${DIR}/password"}}
	o := Options{SASL: SASL{Mechanism: "PLAIN", Username: "cdc", Password: "loaded", Written: map[string]setting.Written{"password": written}}}
	sent := func() string {
		_, first, err := mechanism(o.SASL).Authenticate(t.Context(), "")
		must.OK(t, err)
		return strings.ReplaceAll(string(first), "\x00", ":")
	}
	step := func(name, want string, troubles int) {
		t.Helper()
		if got := sent(); got != want {
			t.Errorf("%s: sent %q, want %q", name, got, want)
		}
		found := o.Present()
		if len(found) != troubles {
			t.Fatalf("%s: troubles %v", name, found)
		}
		if troubles > 0 && (failure.RemedyOf(found[0]) == "" || strings.Contains(found[0].Error(), file)) {
			t.Errorf("%s: %v, remedy %q", name, found[0], failure.RemedyOf(found[0]))
		}
	}
	step("missing from the start", ":cdc:loaded", 1)
	must.OK(t, os.WriteFile(file, []byte("one\r\n"), 0o600))
	step("first", ":cdc:pre-one", 0)
	must.OK(t, os.WriteFile(file, []byte("two"), 0o600))
	step("second", ":cdc:pre-two", 0)
	must.OK(t, os.Remove(file))
	step("removed", ":cdc:pre-two", 1)

	token := filepath.Join(t.TempDir(), "token")
	o = Options{SASL: SASL{Mechanism: "OAUTHBEARER", Token: "loaded", Written: map[string]setting.Written{"token": {{Path: token}}}}}
	for _, text := range []string{"a", "b", ""} {
		must.OK(t, os.WriteFile(token, []byte(text), 0o600))
		if got := sent(); !strings.Contains(got, "Bearer "+text+"\x01") && text != "" || text == "" && !strings.Contains(got, "Bearer b\x01") {
			t.Errorf("sent %q of %q", got, text)
		}
	}
}

// Each member that may be written with a file has a place.
func TestWrittenMembers(t *testing.T) {
	for name := range (&SASL{}).members() {
		if name == "scopes" || name == "extensions" || name == "token_url" || name == "identity" {
			continue
		}
		var s SASL
		s.set(name, "x")
		if s.members()[name] != "x" {
			t.Errorf("%s is not read again", name)
		}
	}
}

func leaf(t *testing.T, cfg TLS) string {
	t.Helper()
	conf := must.Get(presentTLS(cfg, tlsPrefix))(t)
	return conf.Certificates[0].Leaf.NotAfter.String()
}

func content(t *testing.T, file string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(file))(t)
}
