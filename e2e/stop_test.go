package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

const (
	// drainTimeout is the pipelines' errors.drain_timeout.
	drainTimeout = 2 * time.Second
	// stopMargin is how much longer than drainTimeout a stop may take:
	// docs/how-to/run.md lets a container stop for 30s where drain_timeout is
	// 20s.
	stopMargin = 10 * time.Second
)

// TestE2EStopIsBounded stops a process of three pipelines while nothing answers:
// they stop side by side, and within the documented time.
func TestE2EStopIsBounded(t *testing.T) {
	t.Run("silent broker", func(t *testing.T) {
		w := newTrio(t)
		c := w.startTrio()
		w.kafka.Set(proxy.Down, proxy.Fault{Swallow: true})
		w.insertTrio()
		w.wantStop(c)
	})
	t.Run("broker that takes nothing", func(t *testing.T) {
		w := newTrio(t)
		c := w.startTrio()
		w.kafka.Set(proxy.Up, proxy.Fault{Delay: time.Minute})
		w.insertTrio()
		w.wantStop(c)
	})
	t.Run("broker silent from the start", func(t *testing.T) {
		w := newTrio(t)
		w.kafka.Set(proxy.Down, proxy.Fault{Swallow: true})
		c := startConnector(t, w.config)
		c.awaitLog(`"starting"`)
		w.wantStop(c)
	})
	t.Run("silent PostgreSQL", func(t *testing.T) {
		w := newTrio(t)
		c := w.startTrio()
		w.postgres.Set(proxy.Down, proxy.Fault{Swallow: true})
		w.insertTrio()
		w.wantStop(c)
	})
	t.Run("PostgreSQL silent from the start", func(t *testing.T) {
		w := newTrio(t)
		w.postgres.Set(proxy.Down, proxy.Fault{Swallow: true})
		c := startConnector(t, w.config)
		c.awaitLog(`"starting"`)
		w.wantStop(c)
	})
	t.Run("back-off", func(t *testing.T) {
		w := newTrio(t)
		c := w.startTrio()
		w.postgres.Refuse(true)
		w.postgres.Cut()
		for _, name := range trio {
			c.awaitLog(`will reconnect","pipeline":"` + name + `"`)
		}
		w.wantStop(c)
	})
	t.Run("slot behind a long transaction", func(t *testing.T) {
		w := newTrio(t)
		long := connect(t, w.url)
		for _, sql := range []string{`BEGIN`, `INSERT INTO stock VALUES (0)`} {
			must.Get(long.Exec(t.Context(), sql))(t)
		}
		c := startConnector(t, w.config)
		await.Until(t, "slots in creation", func() bool {
			return w.count(`SELECT count(*) FROM pg_replication_slots WHERE active AND slot_name LIKE '`+w.slot+`_%'`) == len(trio)
		})
		w.wantStop(c)
		must.Get(long.Exec(t.Context(), `COMMIT`))(t)
		// The remains of the interrupted creation are no obstacle.
		c = w.startTrio()
		w.wantStop(c)
	})
}

// trio are the pipelines, and their tables.
var trio = []string{"one", "two", "three"}

// newTrio is a world for three pipelines with a table each.
func newTrio(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, options{unread: true, config: fmt.Sprintf("errors: {drain_timeout: %s}\npipelines:\n", drainTimeout)})
	pipelines := "pipelines:\n"
	for _, name := range trio {
		slot := w.slot + "_" + name
		pipelines += fmt.Sprintf("  %s: {source: {tables: [%[1]s], slot: %[2]s, publication: %[2]s}}\n", name, slot)
		w.exec(`CREATE TABLE ` + name + ` (LIKE outbox INCLUDING ALL)`)
	}
	w.rewriteConfig("pipelines:\n", pipelines)
	return w
}

func (w *world) startTrio() *connector {
	w.t.Helper()
	c := startConnector(w.t, w.config)
	for _, name := range trio {
		c.awaitLog(`"streaming","pipeline":"` + name + `"`)
	}
	return c
}

// insertTrio gives each pipeline events, and returns when they are sent.
func (w *world) insertTrio() {
	w.t.Helper()
	for _, name := range trio {
		w.exec(`INSERT INTO ` + name + ` SELECT gen_random_uuid(), 'order', n::text, 'Placed', '{}' FROM generate_series(1, 100) n`)
	}
	var end string
	must.OK(w.t, w.sql.QueryRow(w.t.Context(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&end))
	await.Until(w.t, "events on their way", func() bool {
		return w.count(`SELECT count(*) FROM pg_stat_replication WHERE sent_lsn >= '`+end+`'`) >= len(trio)
	})
}

// wantStop wants the process to end in time after SIGTERM.
func (w *world) wantStop(c *connector) {
	w.t.Helper()
	began := time.Now()
	if code := c.end(syscall.SIGTERM); code != 0 {
		w.t.Errorf("%s after SIGTERM, want exit status 0", c.cmd.ProcessState)
	}
	took := time.Since(began)
	w.t.Logf("stopped within %s", took)
	if took > drainTimeout+stopMargin {
		w.t.Errorf("stopping took %s", took)
	}
}

// An orderly stop repeats nothing, also in the middle of a transaction's rows.
func TestE2EStopsRepeatNothing(t *testing.T) {
	w := newWorld(t, options{})
	c := w.start()
	load := w.write(seed(t), 5*time.Millisecond, 0)
	late := false
	for range 12 {
		load.await(60)
		c.stop()
		_, said := c.lastLog("sent again")
		late = late || said
		c = w.start()
	}
	_, report := w.finish(load, c)
	if late {
		t.Log("an instance could not end its work in the time that it has for that, and said so")
	} else {
		w.wantNoneAgain(report, "though each instance was stopped in order")
	}
}
