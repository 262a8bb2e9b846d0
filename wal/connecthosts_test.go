package wal

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// Failure mode 24: of several hosts, the one that takes writes, and the password
// that the file has now.
func TestConnectToOneOfSeveralHosts(t *testing.T) {
	server := pgtest.Shared(t)
	u, err := url.Parse(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	u.Host = "127.0.0.1:1," + u.Host
	query := u.Query()
	query.Set("target_session_attrs", "read-write")
	u.RawQuery = query.Encode()

	conn, err := Connect(testContext(t), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(testContext(t))
	stream, err := ConnectReplication(testContext(t), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close(testContext(t))
}

func TestConnectReadsThePasswordFileEachTime(t *testing.T) {
	server := pgtest.Shared(t)
	server.Exec(t, `CREATE ROLE rotated LOGIN`)
	t.Cleanup(func() { server.Exec(t, `DROP ROLE rotated`) })
	u, err := url.Parse(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User("rotated")
	file := filepath.Join(t.TempDir(), "pgpass")
	query := u.Query()
	query.Set("passfile", file)
	u.RawQuery = query.Encode()

	for _, password := range []string{"first", "second"} {
		server.Exec(t, `ALTER ROLE rotated PASSWORD '`+password+`'`)
		if err := os.WriteFile(file, []byte("*:*:*:*:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		conn, err := Connect(testContext(t), u.String())
		if err != nil {
			t.Fatalf("with the %s password: %v", password, err)
		}
		if err := conn.Close(testContext(t)); err != nil {
			t.Error(err)
		}
	}
}
