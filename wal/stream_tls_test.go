package wal

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// A TLS record holds one row: a stream that rests after each small read would
// take longer for them than the server.
func TestStreamOverTLS(t *testing.T) {
	certificate, key := selfSigned(t)
	server := pgtest.Start(t, pgtest.Setting("ssl", "on"),
		pgtest.Setting("ssl_cert_file", "test.crt"), pgtest.File("test.crt", certificate),
		pgtest.Setting("ssl_key_file", "test.key"), pgtest.File("test.key", key))
	s := newSource(t, server, `CREATE TABLE t (id int)`)
	s.exec(t, `INSERT INTO t SELECT generate_series(1, 1000)`)
	s.url += "?sslmode=require"

	r := s.open(t, 0)
	if _, ok := r.conn.(*tls.Conn); !ok {
		t.Fatalf("the connection is a %T", r.conn)
	}
	got := r.all(t, s)
	if n := len(lines(got)); n != 1001 {
		t.Errorf("%d rows and commits; want 1001", n)
	}
	if p := (*pacedReader)(r.Stream); p.lastRead >= smallRead || p.rests() {
		t.Errorf("after a read of %d bytes, the stream rests: %t", p.lastRead, p.rests())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var err error
	for err == nil {
		_, err = r.Next(ctx)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("next: %v; want %v", err, context.Canceled)
	}
	end := commitOf(t, got).End
	r.Confirm(end)
	r.close(t)
	if got := s.confirmedFlush(t); got != end {
		t.Errorf("after Close the server has %s confirmed; want %s", got, end)
	}
}

// selfSigned makes a certificate and its key, as PEM.
func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}
