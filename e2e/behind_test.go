package e2e

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

// While the server sends a large transaction of another published table, events
// committed behind it do not get through: the connector is not ready, although
// changes arrive all the time (failure mode 82).
func TestE2EBehindAnotherTable(t *testing.T) {
	w := newWorld(t, options{})
	w.exec(`CREATE TABLE other (v text)`, `CREATE PUBLICATION `+w.slot+` FOR ALL TABLES`)
	c := w.serve()
	c.awaitLog(w.started())
	await.Until(t, "readiness", func() bool { return c.metric("ready") == 1 })
	w.postgres.Set(proxy.Down, proxy.Fault{Delay: 20 * time.Millisecond}) // for each 32 KiB
	w.exec(`INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 60000)`)
	c.awaitNone("ready")
	w.postgres.Set(proxy.Down, proxy.Fault{})
	await.Until(t, "readiness again", func() bool { return c.metric("ready") == 1 })
	c.stop()
}
