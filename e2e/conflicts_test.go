package e2e

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// Beside a subscription retaining dead tuples, the server has a slot
// (pg_conflict_detection, since 19) closed to all other readers: they can neither
// drop nor copy it. The slot of the connector is read, checked and copied as
// usual, also after a switchover.
func TestE2EBesideTheSlotOfConflictDetection(t *testing.T) {
	var version int
	must.OK(t, connect(t, pgtest.Shared(t).URL("postgres")).QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version))
	if version < 190000 {
		t.Skipf("PostgreSQL %d retains no dead tuples for a subscription; 19 or later does", version/10000)
	}
	pair := pgtest.StartPair(t)
	w := newWorld(t, options{pair: pair, direct: true})
	w.exec("CREATE PUBLICATION stock FOR TABLE stock",
		"SELECT pg_create_logical_replication_slot('stock', 'pgoutput')",
		"CREATE SUBSCRIPTION stock CONNECTION '"+w.url+"' PUBLICATION stock WITH (create_slot = false, copy_data = false, enabled = false, retain_dead_tuples = true)")
	pgtest.Await(t, w.sql, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'pg_conflict_detection' AND active)")

	c := w.serve()
	c.awaitLog(w.started())
	load := w.write(seed(t), 8*time.Millisecond, 0)
	load.await(100)
	c.awaitFailover(pair, 1)
	w.untroubled()
	pair.SwitchOver(t)
	load.await(100)
	c.awaitFailover(pair, 0)
	pgtest.Exec(t, pair.Standby.URL("postgres"), "SELECT pg_drop_replication_slot('"+w.slot+"')") // as check says
	c.awaitFailover(pair, 1)
	w.untroubled()
	pair.SwitchOver(t)
	load.await(100)
	_, report := w.finish(load, c.connector)
	w.wantNoneAgain(report, "beside the slot of a subscription")
	pgtest.Exec(t, w.url, "ALTER SUBSCRIPTION stock SET (slot_name = NONE)", "DROP SUBSCRIPTION stock")
}

// untroubled wants check and status to find nothing wrong, nor another reader.
func (w *world) untroubled() {
	w.t.Helper()
	for _, command := range []string{"check", "status"} {
		cmd := exec.CommandContext(w.t.Context(), binary, command, "-c", w.config)
		cmd.Env = environment(w.t)
		said, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(said), "pg_conflict_detection") || !strings.Contains(string(said), "has a copy of the slot") {
			w.t.Errorf("%s: %v\n%s", command, err, said)
		}
	}
}
