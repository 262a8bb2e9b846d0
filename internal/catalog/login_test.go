package catalog

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/certificate"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/cloud"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// everyWay opens a connection of each kind.
func everyWay(ctx context.Context, url string) error {
	for _, open := range []func(context.Context, string) (*pgx.Conn, error){
		Connect, ConnectPooled,
		func(ctx context.Context, url string) (*pgx.Conn, error) { return ConnectStore(ctx, url, "store", nil) },
	} {
		conn, err := open(ctx, url)
		if err != nil {
			return err
		}
		Close(conn)
	}
	conn, err := ConnectReplication(ctx, url)
	if err == nil {
		Close(conn)
	}
	return err
}

var clouds = map[string]struct {
	use    func(*cloud.Cloud, *testing.T)
	remedy string
}{
	AuthAWS:    {(*cloud.Cloud).WebIdentity, "GRANT rds_iam TO"},
	AuthAzure:  {(*cloud.Cloud).WorkloadIdentity, "pgaadauth_create_principal"},
	AuthGoogle: {(*cloud.Cloud).ServiceAccount, "roles/cloudsql.instanceUser"},
}

// Every kind of connection logs in with the workload's token. The error of a
// missing token names the source; of a refused token, identity and remedy. Both
// may pass.
func TestLoginByToken(t *testing.T) {
	for auth, tt := range clouds {
		t.Run(auth, func(t *testing.T) {
			c := cloud.New(t)
			tt.use(c, t)
			front := c.Front(t, pgtest.Shared(t).URL("postgres"))
			url := Login{Auth: auth}.In(front.URL(t))
			must.OK(t, everyWay(pgtest.Context(t), url))
			if logins, refused, identities := front.Seen(); logins != 4 || refused != 0 || identities != 1 {
				t.Errorf("%d logins, %d refusals, %d identities", logins, refused, identities)
			}

			c.Live(time.Minute, func() time.Time { return time.Now().Add(time.Hour) }) // the token has ended there
			err := everyWay(pgtest.Context(t), url)
			if failure.ClassOf(err) != failure.Transient {
				t.Errorf("a refused token: %v", err)
			}
			must.Contain(t, err.Error(), "login as \"postgres\" by", "PAM authentication failed", "28000")
			must.Contain(t, failure.RemedyOf(err), tt.remedy, "postgres")

			c.Answer(http.StatusServiceUnavailable)
			t.Setenv("AZURE_CLIENT_ID", "another") // drops the tokens kept
			t.Setenv("AWS_ROLE_ARN", "another")
			if auth == AuthGoogle {
				t.Setenv("GCE_METADATA_HOST", "127.0.0.1:1")
			}
			before, _, _ := front.Seen()
			err = everyWay(pgtest.Context(t), url)
			if failure.ClassOf(err) != failure.Transient || failure.RemedyOf(err) == "" || strings.Contains(err.Error(), "PAM") {
				t.Errorf("no token: %v", err)
			}
			if after, _, _ := front.Seen(); after != before {
				t.Error("a login without a token")
			}
		})
	}
}

// Files of a login are read again for each connection.
func TestLoginFilesAreReadAgain(t *testing.T) {
	server := pgtest.Shared(t)
	server.Exec(t, `CREATE ROLE rotated LOGIN REPLICATION PASSWORD 'one'`)
	t.Cleanup(func() { server.Exec(t, `DROP ROLE rotated`) })
	file := filepath.Join(t.TempDir(), "secret")
	write := func(text string) { must.OK(t, os.WriteFile(file, []byte(text), 0o600)) }
	as := func(password string) string {
		u := must.Get(url.Parse(server.URL("postgres")))(t)
		u.User = url.UserPassword("rotated", password)
		return u.String()
	}
	for name, tt := range map[string]struct {
		login Login
		text  func(password string) string
	}{
		"password": {Login{Password: setting.Written{{Path: file}}}, func(password string) string { return password + "\n" }},
		"URL":      {Login{URL: setting.Written{{Path: file}}}, func(password string) string { return as(password) + "\n" }},
	} {
		t.Run(name, func(t *testing.T) {
			url := tt.login.In(as("of the start"))
			for _, password := range []string{"one", `two '\& %?`, "three"} {
				server.Exec(t, `ALTER ROLE rotated PASSWORD '`+strings.ReplaceAll(password, "'", "''")+`'`)
				write(tt.text("the former"))
				err := everyWay(pgtest.Context(t), url)
				if failure.ClassOf(err) != failure.Transient {
					t.Errorf("an old password: %v", err)
				}
				must.Contain(t, err.Error(), "28P01", file)
				must.Contain(t, failure.RemedyOf(err), "read again")
				write(tt.text(password))
				must.OK(t, everyWay(pgtest.Context(t), url))
			}
			must.OK(t, os.Remove(file))
			if err := everyWay(pgtest.Context(t), url); failure.ClassOf(err) != failure.Transient || !strings.Contains(err.Error(), "cannot be read") {
				t.Errorf("no file: %v", err)
			}
		})
	}
}

func TestLoginNeedsEncryption(t *testing.T) {
	for text, problem := range map[string]string{
		"postgres://u@db.example/d":                  "may connect to db.example without TLS",
		"postgres://u@db.example/d?sslmode=prefer":   "may connect to db.example without TLS",
		"postgres://u@db.example/d?sslmode=require":  "",
		"host=db.example user=u sslmode=verify-full": "",
		"host=a,db.example user=u sslmode=allow":     "may connect to a without TLS",
		"postgres://u@127.0.0.1/d":                   "",
		"host=/var/run/postgresql user=u":            "",
	} {
		for auth := range clouds {
			err := CheckLogin(Login{Auth: auth}.In(text))
			if (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
				t.Errorf("%s: %v", text, err)
			}
		}
		must.OK(t, CheckLogin(text))
	}
}

// A client certificate and the server's CA are read again for each connection.
func TestCertificatesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	seen := make(chan []byte, 1)
	addr := testserver.Serve(t, func(conn net.Conn) {
		_, _ = io.CopyN(io.Discard, conn, 8) // the request for TLS
		_, _ = conn.Write([]byte{'S'})
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Error(err)
			return
		}
		encrypted := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
		_ = encrypted.Handshake() // the client's part of a failure is below
		if certs := encrypted.ConnectionState().PeerCertificates; len(certs) > 0 {
			seen <- certs[0].Raw
		}
	})
	host, port, err := net.SplitHostPort(addr)
	must.OK(t, err)
	url := "host=" + host + " port=" + port + " user=u sslmode=verify-full sslcert=" + cert + " sslkey=" + key + " sslrootcert=" + cert
	for range 2 {
		c, k, err := certificate.SelfSigned()
		must.OK(t, err)
		must.OK(t, os.WriteFile(cert, c, 0o600))
		must.OK(t, os.WriteFile(key, k, 0o600))
		_, err = Connect(pgtest.Context(t), url)
		if err == nil || strings.Contains(err.Error(), "certificate") {
			t.Fatalf("error = %v", err)
		}
		block, _ := pem.Decode(c)
		select {
		case got := <-seen:
			if !bytes.Equal(got, block.Bytes) {
				t.Error("the certificate of the former connection")
			}
		case <-pgtest.Context(t).Done():
			t.Fatal("no certificate")
		}
	}
}
