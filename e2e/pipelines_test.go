package e2e

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
)

// TestE2EPipelinesKilled kills a process with a pipeline of each mode. The first
// loses its slot, the second has no topic to write to, and the third must not
// notice. The process, stopped, reports the loss.
func TestE2EPipelinesKilled(t *testing.T) {
	kills := 6
	if testing.Short() {
		kills = 3
	}
	w := newWorld(t, options{})
	lost := w.slot + "_lost"
	w.rewriteConfig("\nhttp:", fmt.Sprintf(`
pipelines:
  kept: {}
  lost:
    source: {mode: message, tables: [], slot: %s, publication: %[1]s}
    event: {additional: []}
  stuck:
    source: {mode: poll, tables: [public.stuck]}
    event: {additional: []}
    errors: {drain_timeout: 1s}
http:`, lost))
	w.exec(`CREATE TABLE stuck (id bigserial PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb,
			created_at timestamptz DEFAULT clock_timestamp(), published boolean NOT NULL DEFAULT false, published_at timestamptz)`,
		`INSERT INTO stuck (aggregate_type, aggregate_id, event_type, payload) VALUES ('late', '1', 'Done', '{}')`)
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 100))
	c := startConnector(t, w.config)
	c.awaitLog(`"streaming","pipeline":"kept"`)
	c.awaitLog(`"streaming","pipeline":"lost"`)
	c.awaitLog(`"polling","pipeline":"stuck"`)

	load := w.write(s, 5*time.Millisecond, 0)
	var deaths []death
	for n := range number(t, killsEnv, kills) {
		load.await(20 + random.IntN(500))
		deaths = append(deaths, w.kill(c))
		if n == 0 {
			w.dropSlot(lost)
		}
		c = startConnector(t, w.config)
	}
	c.awaitLog(`"pipeline failed and needs an operator","pipeline":"lost"`)
	load.await(500)
	w.broker.CreateTopic(t, topicOf("late"), 1, nil)
	await.Until(t, "event of the pipeline that had no topic", func() bool {
		c.running()
		return w.count("SELECT count(*) FROM stuck WHERE published") == 1
	})
	load.stop()
	w.arrived()
	if code := c.end(syscall.SIGTERM); code != 3 {
		t.Errorf("%s after SIGTERM, want exit status 3: a slot is lost", c.cmd.ProcessState)
	}
	h, _ := w.verify()
	w.wantDrained(h)
	judge(t, deaths, h)
}

// dropSlot drops a slot after the reader's end, once the server knows.
func (w *world) dropSlot(slot string) {
	w.t.Helper()
	await.Until(w.t, "end of the slot's reader", func() bool {
		return w.count("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '"+slot+"' AND NOT active") == 1
	})
	w.exec("SELECT pg_drop_replication_slot('" + slot + "')")
}

// count is the only value of a query's only row.
func (w *world) count(query string) (n int) {
	w.t.Helper()
	if err := w.sql.QueryRow(w.t.Context(), query).Scan(&n); err != nil {
		w.t.Fatalf("%.100s: %v", query, err)
	}
	return n
}
