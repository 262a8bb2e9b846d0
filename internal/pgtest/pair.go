package pgtest

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Pair is a primary, and a standby that copies its logical slots.
type Pair struct{ Primary, Standby *Server }

// StartPair starts both. All that the primary writes reaches the standby, and
// slots with failover send nothing that it does not have yet
// (synchronized_standby_slots). The test is skipped before PostgreSQL 17, and where
// the servers' files are not on this machine.
func StartPair(t testing.TB) *Pair {
	t.Helper()
	open := File("pg_hba.conf", []byte("host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"))
	hba := Setting("hba_file", "pg_hba.conf")
	primary := Start(t, open, hba)
	data := dataOf(t, primary)
	address, err := url.Parse(primary.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	standby := Start(t, open, hba,
		Setting("primary_conninfo", "host=127.0.0.1 user=postgres dbname=postgres port="+address.Port()),
		Setting("primary_slot_name", "standby"),
		Setting("hot_standby_feedback", "on"),
		Setting("sync_replication_slots", "on"))
	copyTo := dataOf(t, standby)

	primary.Exec(t, "SELECT pg_create_physical_replication_slot('standby')")
	standby.Stop(t, Fast)
	primary.Stop(t, Fast)
	replace(t, copyTo, data)
	run(t, "cp", "-a", filepath.Join(data, "PG_VERSION"), filepath.Join(copyTo, "standby.signal"))
	primary.Resume(t)
	standby.Resume(t)
	primary.Exec(t, "ALTER SYSTEM SET synchronized_standby_slots = 'standby'", "SELECT pg_reload_conf()") // the copy has it not
	return &Pair{Primary: primary, Standby: standby}
}

// FailOver has the primary crash, promotes the standby, and has that go on at the
// primary's address.
func (p *Pair) FailOver(t testing.TB) {
	t.Helper()
	to, from := dataOf(t, p.Primary), dataOf(t, p.Standby)
	p.Primary.Stop(t, Immediate)
	p.Standby.Exec(t, "SELECT pg_promote()")
	p.Standby.Stop(t, Fast)
	replace(t, to, from)
	p.Primary.Resume(t)
}

// dataOf is the server's data directory.
func dataOf(t testing.TB, s *Server) (dir string) {
	t.Helper()
	var version int
	connected(t, s.URL("postgres"), func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('data_directory')`).Scan(&version, &dir)
	})
	if version < 170000 {
		t.Skip("servers before 17 do not copy slots to standbys")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the server's files are not on this machine")
	}
	return dir
}

// replace has a copy of one directory in the place of another.
func replace(t testing.TB, old, replacement string) {
	t.Helper()
	run(t, "rm", "-rf", old)
	run(t, "cp", "-a", replacement, old)
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}
