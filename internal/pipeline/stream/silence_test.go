package stream

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// The server's process is silent for longer than source.liveness_timeout, and works: here
// on a wait for a lock. The stream is kept, as another would begin with the same
// transaction. A process waiting for its client has lost the client.
func TestASilentStreamIsKeptWhileItsSenderWorks(t *testing.T) {
	t.Parallel()
	// A vacuum of a catalog meanwhile would keep new sessions out: they load all
	// catalogs anew then, the locked catalog, too.
	d := newDatabase(t, pgtest.Start(t, pgtest.Setting("autovacuum", "off")).NewDatabase(t))
	d.opts.LivenessTimeout = time.Second
	i := d.run().streams()
	locker := *d
	locker.connect()
	locker.exec("SET application_name = 'a catalog lock'; BEGIN; LOCK TABLE pg_catalog.pg_publication IN ACCESS EXCLUSIVE MODE")
	d.insert(1, 1)
	i.unready("a catalog lock")
	if s := i.status().Sender; s == nil || int(s.PID) != d.walsender() || s.SilentSeconds <= 0 {
		t.Errorf("/status says of the sender: %+v", s)
	}
	told := func() int { return i.logs.FilterMessageSnippet("is given time").Len() }
	eventually(t, "a line in the log", func() bool { return told() > 0 })
	if n := i.metrics.reconnected(); n > 0 {
		t.Errorf("%d reconnects", n)
	}
	locker.exec("COMMIT")
	d.arrive()
	eventually(t, "readiness", i.ready)
	if n := told(); n != 1 {
		t.Errorf("%d lines in the log, want one", n)
	}
	if s := i.status().Sender; s != nil {
		t.Errorf("/status says of the sender: %+v", s)
	}
	sender, err := catalog.AskSender(t.Context(), d.url, nil, d.opts.Slot, int32(d.walsender()))
	if err != nil || sender.Works() {
		t.Errorf("of an idle sender: %v, %v", sender, err)
	}
	if _, err := catalog.AskSender(t.Context(), d.url, nil, d.opts.Slot, 1); err == nil {
		t.Error("a process that does not send the slot is taken for one that does")
	}
	d.finish(i)
}
