package catalog

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// Failure mode 24: of several hosts the writable host, and the password now in
// the file.
func TestConnectToOneOfSeveralHosts(t *testing.T) {
	server := pgtest.Shared(t)
	u := must.Get(url.Parse(server.URL("postgres")))(t)
	u.Host = "127.0.0.1:1," + u.Host
	query := u.Query()
	query.Set("target_session_attrs", "read-write")
	u.RawQuery = query.Encode()

	conn := must.Get(Connect(pgtest.Context(t), u.String()))(t)
	defer conn.Close(pgtest.Context(t))
	stream := must.Get(ConnectReplication(pgtest.Context(t), u.String()))(t)
	defer stream.Close(pgtest.Context(t))
}

// A lasting fault of one of several hosts is no verdict as long as another may
// come back.
func TestConnectWhereOneOfSeveralHostsRefuses(t *testing.T) {
	server := pgtest.Shared(t)
	u := must.Get(url.Parse(server.URL("postgres")))(t)
	const down, unknown = "127.0.0.1:1", "no-such-host.invalid:5432"
	up := u.Host
	for _, tt := range []struct {
		name, hosts, password string
		class                 failure.Class
		is                    error
		text                  string
	}{
		{"refused, down", up + "," + down, "wrong", failure.Transient, syscall.ECONNREFUSED, "password authentication failed"},
		{"down, refused", down + "," + up, "wrong", failure.Transient, syscall.ECONNREFUSED, "password authentication failed"},
		{"unknown, down", unknown + "," + down, "", failure.Transient, syscall.ECONNREFUSED, "no-such-host"},
		{"all refused", up + "," + up, "wrong", failure.Config, nil, "password authentication failed"},
		{"refused, unknown", up + "," + unknown, "wrong", failure.Transient, ErrUnknownHost, "password authentication failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			several := *u
			several.Host, several.User = tt.hosts, url.UserPassword("postgres", tt.password)
			for name, connect := range map[string]func() error{
				"ordinary":    func() error { _, err := Connect(pgtest.Context(t), several.String()); return err },
				"replication": func() error { _, err := ConnectReplication(pgtest.Context(t), several.String()); return err },
			} {
				err := connect()
				if failure.ClassOf(err) != tt.class || tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("%s: %v (class %d)", name, err, failure.ClassOf(err))
					continue
				}
				if failure.RemedyOf(err) == "" || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v; remedy %q", name, err, failure.RemedyOf(err))
				}
				if tt.is != ErrUnknownHost && errors.Is(err, ErrUnknownHost) {
					t.Errorf("%s: %v counts as an unknown host", name, err)
				}
			}
		})
	}
}

// A host refusing does not hide those behind it.
func TestConnectPastAHostThatRefuses(t *testing.T) {
	refuses := must.Get(url.Parse(pgtest.Shared(t).URL("postgres")))(t)
	accepts := must.Get(url.Parse(pgtest.Start(t, pgtest.Own()).URL("postgres")))(t)
	port := accepts.Port()
	accepts.Host = refuses.Host + "," + accepts.Host
	for _, kind := range []string{"any", "read-write", "prefer-standby"} {
		accepts.RawQuery = "target_session_attrs=" + kind
		conn, err := Connect(pgtest.Context(t), accepts.String())
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if at := conn.PgConn().Conn().RemoteAddr().String(); !strings.HasSuffix(at, ":"+port) {
			t.Errorf("%s: connected to %s", kind, at)
		}
		must.OK(t, conn.Close(pgtest.Context(t)))
	}
}

// While a standby answers and the primary is away, host and port are right.
func TestConnectWhereOnlyAStandbyAnswers(t *testing.T) {
	standby := pgtest.Start(t, pgtest.Own(), pgtest.File("standby.signal", nil))
	u := must.Get(url.Parse(standby.URL("postgres")))(t)
	for _, hosts := range []string{u.Host, "127.0.0.1:1," + u.Host, u.Host + ",127.0.0.1:1"} {
		both := *u
		both.Host, both.RawQuery = hosts, "target_session_attrs=read-write"
		_, err := Connect(pgtest.Context(t), both.String())
		if failure.ClassOf(err) != failure.Transient || !strings.Contains(failure.RemedyOf(err), "start the primary, or promote a standby") {
			t.Errorf("%s: %v; remedy %q", hosts, err, failure.RemedyOf(err))
		}
	}
}

func TestConnectReadsThePasswordFileEachTime(t *testing.T) {
	server := pgtest.Shared(t)
	server.Exec(t, `CREATE ROLE rotated LOGIN`)
	t.Cleanup(func() { server.Exec(t, `DROP ROLE rotated`) })
	u := must.Get(url.Parse(server.URL("postgres")))(t)
	u.User = url.User("rotated")
	file := filepath.Join(t.TempDir(), "pgpass")
	query := u.Query()
	query.Set("passfile", file)
	u.RawQuery = query.Encode()

	for _, password := range []string{"first", "second"} {
		server.Exec(t, `ALTER ROLE rotated PASSWORD '`+password+`'`)
		must.OK(t, os.WriteFile(file, []byte("*:*:*:*:"+password+"\n"), 0o600))
		conn, err := Connect(pgtest.Context(t), u.String())
		if err != nil {
			t.Fatalf("with the %s password: %v", password, err)
		}
		must.OK(t, conn.Close(pgtest.Context(t)))
	}
}
