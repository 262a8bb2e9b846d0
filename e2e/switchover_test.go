package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// switchoversEnv is how often primary and standby change their parts.
const switchoversEnv = "CDC_OUTBOX_E2E_SWITCHOVERS"

// Under load, primary and standby change their parts, there and back, and the
// connector follows. After the first switchover the former primary's own slot
// keeps the copy away: check warns until the remedy is applied. A former copy
// does not keep another copy away later.
func TestE2ESwitchoverThereAndBack(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	w := newWorld(t, options{pair: pair, direct: true})
	c := w.serve()
	c.awaitLog(w.started())
	load := w.write(seed(t), 8*time.Millisecond, 0)
	for n := range number(t, switchoversEnv, 2) {
		c.awaitFailover(pair, 1)
		if found := w.failoverCheck(); strings.Contains(found, "warn") || !strings.Contains(found, "has a copy of the slot") {
			t.Errorf("before a switchover: %s", found)
		}
		load.await(200)
		pair.SwitchOver(t)
		load.await(200)
		if n > 0 {
			continue
		}
		c.awaitFailover(pair, 0)
		drop := "SELECT pg_drop_replication_slot('" + w.slot + "');"
		must.Contain(t, w.failoverCheck(), "warn", "has a slot of that name that is no copy", drop)
		pgtest.Exec(t, pair.Standby.URL("postgres"), drop)
	}
	c.awaitFailover(pair, 1)
	_, report := w.finish(load, c.connector)
	w.wantNoneAgain(report, "after a switchover")
}

// awaitFailover waits until the metric says whether the standby has a copy of the slot.
// The primary has none.
func (s served) awaitFailover(pair *pgtest.Pair, want float64) {
	s.t.Helper()
	series := func(server *pgtest.Server) string {
		return fmt.Sprintf("failover_ready{host=%q}", hostOf(s.t, server.URL("postgres")))
	}
	await.Until(s.t, fmt.Sprintf("%s %v", series(pair.Standby), want), func() bool {
		s.running()
		pair.Primary.Exec(s.t, "SELECT pg_log_standby_snapshot()") // a temporary copy waits for a snapshot
		got, ok := s.lookUp(series(pair.Standby))
		_, other := s.lookUp(series(pair.Primary))
		return ok && got == want && !other
	})
}

// failoverCheck are the findings of check about failovers, a line each.
func (w *world) failoverCheck() (found string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), binary, "check", "--json", "-c", w.config)
	cmd.Env = environment(w.t)
	said, _ := cmd.Output() // other checks may warn or fail
	var report struct {
		Checks []struct{ Name, Outcome, Detail, Remedy string }
	}
	must.OK(w.t, json.Unmarshal(said, &report))
	for _, f := range report.Checks {
		if f.Name == "failover" {
			found += fmt.Sprintf("%s: %s -> %s\n", f.Outcome, f.Detail, f.Remedy)
		}
	}
	return found
}

// A slot nobody has read yet is lost with the server: the next run does not
// begin anew with another, as if nothing had been committed in between.
func TestE2EFailoverRightAfterSetup(t *testing.T) {
	pair := pgtest.StartPair(t)
	pair.Standby.Exec(t, "ALTER SYSTEM SET sync_replication_slots = off", "SELECT pg_reload_conf()") // there was no time for a copy
	pair.Primary.Exec(t, "ALTER SYSTEM RESET synchronized_standby_slots", "SELECT pg_reload_conf()")
	w := newWorld(t, options{pair: pair, direct: true, unread: true})
	w.run("setup")
	w.insertSeries(1)
	var end string
	must.OK(t, w.sql.QueryRow(t.Context(), "SELECT pg_current_wal_flush_lsn()::text").Scan(&end))
	pgtest.Await(t, connect(t, pair.Standby.URL("postgres")), "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", end)
	pair.FailOver(t)
	c := startConnector(t, w.config)
	if code := c.wait(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	must.Contain(t, c.lastLines(1), w.slot, "is gone")
}

// A standby without a copy of the slot takes over. The former primary has the slot
// still, and everything committed since: once that server is the primary again, as
// the message advises, the connector goes on.
func TestE2ESwitchoverBackToTheSlot(t *testing.T) {
	pair := pgtest.StartPair(t)
	for _, server := range []*pgtest.Server{pair.Primary, pair.Standby} {
		server.Exec(t, "ALTER SYSTEM SET sync_replication_slots = off", "SELECT pg_reload_conf()")
	}
	w := newWorld(t, options{pair: pair, direct: true})
	c := startConnector(t, w.config)
	c.awaitLog(w.started())
	load := w.write(seed(t), 8*time.Millisecond, 0)
	load.await(100)
	pair.SwitchOver(t)
	if code := c.wait(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	must.Contain(t, c.lastLines(1), "is gone", "make that server the primary again")
	load.await(100)
	found := w.failoverCheck()
	must.Contain(t, found, "and the primary has none", "make that server the primary again")

	pair.SwitchOver(t)
	_, report := w.finish(load, startConnector(t, w.config))
	w.wantNoneAgain(report, "after a switchover back")
}
