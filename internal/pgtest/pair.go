package pgtest

import (
	"net/url"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/must"
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
	var copies bool
	if primary.ask(t, "SELECT current_setting('server_version_num')::int >= 170000", &copies); !copies {
		t.Skip("servers before 17 do not copy slots to standbys")
	}
	data, address := primary.DataDirectory(t), must.Get(url.Parse(primary.URL("postgres")))(t)
	standby := Start(t, open, hba,
		Setting("primary_conninfo", "host=127.0.0.1 user=postgres dbname=postgres port="+address.Port()),
		Setting("primary_slot_name", "standby"),
		Setting("hot_standby_feedback", "on"),
		Setting("sync_replication_slots", "on"))
	copyTo := standby.DataDirectory(t)

	primary.Exec(t, "SELECT pg_create_physical_replication_slot('standby')")
	standby.Stop(t, Fast)
	primary.Stop(t, Fast)
	CopyFiles(t, data, copyTo)
	StandBy(t, copyTo)
	primary.Resume(t)
	standby.Resume(t)
	primary.Exec(t, "ALTER SYSTEM SET synchronized_standby_slots = 'standby'", "SELECT pg_reload_conf()") // the copy has it not
	return &Pair{Primary: primary, Standby: standby}
}

// FailOver has the primary crash, promotes the standby, and has that go on at the
// primary's address.
func (p *Pair) FailOver(t testing.TB) {
	t.Helper()
	from, to := p.Standby.DataDirectory(t), p.Primary.DataDirectory(t)
	p.Primary.Stop(t, Immediate)
	p.Standby.Exec(t, "SELECT pg_promote()")
	p.Standby.Stop(t, Fast)
	CopyFiles(t, from, to)
	p.Primary.Resume(t)
}
