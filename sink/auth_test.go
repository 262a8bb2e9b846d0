package sink

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
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

	"github.com/twmb/franz-go/pkg/sasl"

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

func TestMechanism(t *testing.T) {
	for _, name := range []string{"", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"} {
		m := mechanism(SASL{Mechanism: name})
		if name == "" && m != nil || name != "" && m.Name() != name {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// A token endpoint that is away is like a broker that is away; a refusal is not, and a refused
// token is not used again.
func TestTokenEndpointForBrokers(t *testing.T) {
	status, asked := http.StatusOK, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":3600}`, asked)
	}))
	defer server.Close()
	login := func(client string) (sasl.Session, string, error) {
		m := mechanism(SASL{Mechanism: "OAUTHBEARER", TokenURL: server.URL, ClientID: client, ClientSecret: "hunter2", Extensions: map[string]string{"logicalCluster": "lkc-1"}})
		session, first, err := m.Authenticate(t.Context(), "broker:9092")
		return session, string(first), err
	}
	for range 2 {
		session, first, err := login("cdc")
		must.OK(t, err)
		if want := "n,,\x01auth=Bearer token-1\x01logicalCluster=lkc-1\x01\x01"; first != want {
			t.Errorf("sent %q, want %q", first, want)
		}
		if done, _, err := session.Challenge(nil); !done || err != nil {
			t.Error(done, err)
		}
	}
	session, _, _ := login("cdc")
	if done, reply, err := session.Challenge([]byte(`{"status":"invalid_token"}`)); done || string(reply) != "\x01" || err != nil {
		t.Errorf("%t, %q, %v", done, reply, err)
	}
	if _, first, _ := login("cdc"); !strings.Contains(first, "token-2") {
		t.Errorf("sent %q after the refusal", first)
	}
	for client, tt := range map[string]struct {
		status int
		want   failure.Class
	}{"a": {http.StatusServiceUnavailable, failure.Transient}, "b": {http.StatusUnauthorized, failure.Config}} {
		status = tt.status
		_, _, err := login(client)
		op, dial := errors.AsType[*net.OpError](err)
		if failure.ClassOf(err) != tt.want || dial != (tt.want == failure.Transient) || dial && op.Op != "dial" || failure.RemedyOf(err) == "" || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%d: %v, remedy %q, class %v", tt.status, err, failure.RemedyOf(err), failure.ClassOf(err))
		}
	}
}

// A broker refuses a token in a challenge (RFC 7628), and gives the error only in answer
// to a reply. Without the reply a refused token looks like a broker that is away.
func TestRefusedTokenIsAnswered(t *testing.T) {
	m := mechanism(SASL{Mechanism: "OAUTHBEARER", Token: "t"})
	session, _, err := m.Authenticate(t.Context(), "broker")
	must.OK(t, err)
	done, reply, err := session.Challenge([]byte(`{"status":"invalid_token"}`))
	if done || string(reply) != "\x01" || err != nil {
		t.Errorf("%t, %q, %v", done, reply, err)
	}
}
