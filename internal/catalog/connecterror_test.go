package catalog

import (
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// Every obstacle to a connection is a single line, without repetitions.
func TestConnectErrors(t *testing.T) {
	server := pgtest.Shared(t)
	server.Exec(t, `CREATE ROLE poor LOGIN PASSWORD 'pw'`)
	t.Cleanup(func() { server.Exec(t, `DROP ROLE poor`) })
	with := func(change func(*url.URL)) string {
		u := must.Get(url.Parse(server.URL("postgres")))(t)
		change(u)
		return u.String()
	}

	for _, tt := range []struct {
		name, url   string
		class       failure.Class
		text        string
		remedy      string
		replication bool
	}{
		{"wrong password", with(func(u *url.URL) { u.User = url.UserPassword("postgres", "no") }),
			failure.Config, "password authentication failed", "source.password", false},
		{"no such database", with(func(u *url.URL) { u.Path = "/nowhere" }),
			failure.Config, `database "nowhere" does not exist`, "correct the database", false},
		{"nobody listens", "postgres://x@127.0.0.1:1/x", failure.Transient, "connection refused", "start PostgreSQL", false},
		{"role without REPLICATION", with(func(u *url.URL) { u.User = url.UserPassword("poor", "pw") }),
			failure.Config, "(SQLSTATE 42501)", `ALTER ROLE "poor" WITH REPLICATION;`, true},
		{"TLS asked for in vain", with(func(u *url.URL) { u.RawQuery = "sslmode=require" }),
			failure.Config, "server refused TLS connection", "turn ssl on", false},
		{"a parameter that nobody knows", with(func(u *url.URL) { u.RawQuery = "foo=bar" }),
			failure.Config, "(SQLSTATE 42704)", "correct the parameter", false},
		{"a parameter's value", with(func(u *url.URL) { u.RawQuery = "datestyle=x&work_mem=much" }),
			failure.Config, "(SQLSTATE 22023)", "correct the parameter", true},
		{"another service", "postgres://x@" + service(t, "HTTP/1.1 400 Bad Request\r\n\r\n") + "/x?sslmode=disable",
			failure.Transient, "failed to receive message", "correct host and port", false},
		{"a service that hangs up", "postgres://x@" + service(t, "") + "/x",
			failure.Transient, "unexpected EOF", "correct host and port", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var err error
			if tt.replication {
				_, err = ConnectReplication(pgtest.Context(t), tt.url)
			} else {
				_, err = Connect(pgtest.Context(t), tt.url)
			}
			if err == nil {
				t.Fatal("connected")
			}
			if failure.ClassOf(err) != tt.class || !strings.Contains(failure.RemedyOf(err), tt.remedy) {
				t.Errorf("class %v, remedy %q", failure.ClassOf(err), failure.RemedyOf(err))
			}
			if text := err.Error(); strings.ContainsAny(text, "\n\t") || strings.Count(text, tt.text) != 1 {
				t.Errorf("text %q; want one line with %q once", text, tt.text)
			}
			if _, ok := errors.AsType[*pgconn.ConnectError](err); !ok {
				t.Error("the cause is lost")
			}
		})
	}
}

// service answers everything with the text, and hangs up.
func service(t *testing.T, answer string) string {
	t.Helper()
	return testserver.Serve(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1<<10))
		_, _ = conn.Write([]byte(answer))
	})
}

func TestAttempts(t *testing.T) {
	refused, wrong := errors.New("a:1: server refused TLS connection"), errors.New("a:1: wrong password")
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"one", wrong, "a:1: wrong password"},
		{"with and without TLS", errors.Join(refused, wrong), "a:1: wrong password"},
		{"only with TLS", errors.Join(refused, refused), "a:1: server refused TLS connection"},
		{"the same twice", errors.Join(wrong, errors.Join(wrong)), "a:1: wrong password"},
		{"two hosts", errors.Join(wrong, errors.New("b:1: down")), "a:1: wrong password; b:1: down"},
		{"a name looked up twice", errors.New("resolving: no such host\nno such host"), "resolving: no such host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			texts, refused := attempts(tt.err)
			if got := strings.Join(texts, "; "); got != tt.want || refused != strings.Contains(tt.want, "refused TLS") {
				t.Errorf("got %q, %t, want %q", got, refused, tt.want)
			}
		})
	}
}
