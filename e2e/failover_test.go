package e2e

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// The primary crashes under load, and a standby takes over, with a copy of the
// slot, maybe behind the checkpoint, and another timeline.
func TestE2EExactlyOnceThroughAFailover(t *testing.T) {
	for name, meanwhile := range map[string]func(w *world, c *connector, failOver func()) *connector{
		"connector goes on": func(_ *world, c *connector, failOver func()) *connector {
			failOver()
			return c
		},
		"connector is killed": func(w *world, c *connector, failOver func()) *connector {
			c.kill()
			failOver()
			return startConnector(w.t, w.config)
		},
		"while a Kafka transaction ends": func(w *world, c *connector, failOver func()) *connector {
			goOn := w.holdEnd(c)
			failOver()
			goOn()
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := pgtest.StartPair(t)
			w := newWorld(t, options{exactlyOnce: true, server: servers.Primary})
			c := w.start()
			beside := connect(t, servers.Standby.URL("postgres"))
			servers.Primary.Exec(t, "SELECT pg_log_standby_snapshot()") // a temporary copy waits for the snapshot
			pgtest.Await(t, beside, `SELECT count(*) > 0 FROM pg_replication_slots WHERE synced AND NOT temporary AND slot_name = $1`, w.slot)
			// Or commits acknowledged to services could be lost with the
			// primary.
			servers.Primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
			load := w.write(seed(t), 8*time.Millisecond, 0)
			load.await(500)
			c = meanwhile(w, c, func() { servers.FailOver(t) })
			load.await(500)
			if timeline := w.timeline(); timeline != 2 {
				t.Fatalf("timeline %d: the standby did not take over", timeline)
			}
			h, report := w.finish(load, c)
			w.wantNoneAgain(report, "after a failover")
			w.wantDrained(h)
			w.verifyAll(h)
		})
	}
}

// timeline is the server's.
func (w *world) timeline() (n int) {
	w.t.Helper()
	conn := connect(w.t, w.url)
	must.OK(w.t, conn.QueryRow(pgtest.Context(w.t), "SELECT timeline_id FROM pg_control_checkpoint()").Scan(&n))
	return n
}
