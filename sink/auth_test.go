package sink

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// authority is a certificate authority.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	file string // the certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t), pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key))(t)
	a.cert = must.Get(x509.ParseCertificate(der))(t)
	a.pool.AddCert(a.cert)
	a.file = writePEM(t, "CERTIFICATE", der)
	return a
}

// issue returns a certificate for a server or client under names or addresses,
// with expiry in d.
func (a *authority) issue(t *testing.T, d time.Duration, names ...string) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(d),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key))(t)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// files issues a certificate into two files.
func (a *authority) files(t *testing.T, d time.Duration) (certFile, keyFile string) {
	t.Helper()
	cert := a.issue(t, d)
	der := must.Get(x509.MarshalECPrivateKey(cert.PrivateKey.(*ecdsa.PrivateKey)))(t)
	return writePEM(t, "CERTIFICATE", cert.Certificate[0]), writePEM(t, "EC PRIVATE KEY", der)
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	return must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

func writePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.pem")
	must.OK(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return name
}

func TestTokenIsKeptUntilNearlyExpired(t *testing.T) {
	for expires, asked := range map[string]int{
		`3600`: 1, `"3600"`: 1, `1000000000000`: 1, `0`: 2, `-1`: 2, `null`: 2,
	} {
		n := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n++
			user, pass, _ := r.BasicAuth()
			if user != "cdc" || pass != "a%2Fb" || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "kafka write" {
				t.Errorf("asked as %s:%s with %v", user, pass, r.Form)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":%s}`, n, expires)
		}))
		s := &tokenSource{cfg: SASL{TokenURL: server.URL, ClientID: "cdc", ClientSecret: "a/b", Scopes: []string{"kafka", "write"}}}
		for range 2 {
			token, err := s.token(t.Context())
			if err != nil || token != fmt.Sprintf("token-%d", n) {
				t.Errorf("got %q, %v", token, err)
			}
		}
		if n != asked {
			t.Errorf("expires in %s s: asked %d times, want %d", expires, n, asked)
		}
		server.Close()
	}
}

func TestTokenRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		class  failure.Class
	}{
		"wrong secret":    {http.StatusUnauthorized, `{"error":"invalid_client"}`, failure.Config},
		"not an endpoint": {http.StatusOK, `<html>`, failure.Transient},
		"overloaded":      {http.StatusTooManyRequests, ``, failure.Transient},
		"broken":          {http.StatusBadGateway, ``, failure.Transient},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				fmt.Fprint(w, tc.body)
			}))
			defer server.Close()
			_, err := (&tokenSource{cfg: SASL{TokenURL: withSecrets(server.URL)}}).token(t.Context())
			if err == nil || failure.ClassOf(err) != tc.class {
				t.Errorf("got %v of class %d", err, failure.ClassOf(err))
			}
			wantNoSecrets(t, err)
		})
	}
	_, err := (&tokenSource{cfg: SASL{TokenURL: withSecrets("http://127.0.0.1:1")}}).token(t.Context())
	wantNoSecrets(t, err)
}

// withSecrets adds secrets to an endpoint, as some services have them.
func withSecrets(endpoint string) string {
	return strings.Replace(endpoint, "://", "://user:hunter2@", 1) + "/token?key=sesame"
}

func wantNoSecrets(t *testing.T, err error) {
	t.Helper()
	if text := fmt.Sprint(err); strings.Contains(text, "hunter2") || strings.Contains(text, "sesame") || !strings.Contains(text, "/token") {
		t.Errorf("the error tells secrets, or not the endpoint: %v", err)
	}
}

func TestMechanism(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	for name, tc := range map[string]struct {
		cfg SASL
		ok  bool
	}{
		"none":           {SASL{}, true},
		"PLAIN":          {SASL{Mechanism: "PLAIN"}, true},
		"SCRAM-SHA-256":  {SASL{Mechanism: "SCRAM-SHA-256"}, true},
		"SCRAM-SHA-512":  {SASL{Mechanism: "SCRAM-SHA-512"}, true},
		"OAuth token":    {SASL{Mechanism: "OAUTHBEARER", Token: "t"}, true},
		"OAuth endpoint": {SASL{Mechanism: "OAUTHBEARER", TokenURL: "http://idp"}, true},
		"AWS keys":       {SASL{Mechanism: "AWS_MSK_IAM", AccessKey: "a", SecretKey: "s"}, true},
		"AWS nothing":    {SASL{Mechanism: "AWS_MSK_IAM"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := mechanism(tc.cfg)
			if tc.ok != (err == nil) || !tc.ok && failure.ClassOf(err) != failure.Config {
				t.Fatalf("got %v", err)
			}
			if m != nil && m.Name() != tc.cfg.Mechanism {
				t.Errorf("mechanism %s", m.Name())
			}
		})
	}
}

// A broker refuses a token in a challenge (RFC 7628), and gives the error only in answer
// to a reply. Without the reply a refused token looks like a broker that is away.
func TestRefusedTokenIsAnswered(t *testing.T) {
	m := must.Get(mechanism(SASL{Mechanism: "OAUTHBEARER", Token: "t"}))(t)
	session, _, err := m.Authenticate(t.Context(), "broker")
	must.OK(t, err)
	done, reply, err := session.Challenge([]byte(`{"status":"invalid_token"}`))
	if done || string(reply) != "\x01" || err != nil {
		t.Errorf("%t, %q, %v", done, reply, err)
	}
}
