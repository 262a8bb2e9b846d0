package stream

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// leased is a sink of the test's topic, writing only with the lease.
func (d *database) leased() (*gate, *lease.Lease) {
	l := lease.New(func() {})
	return &gate{topic: d.topic, lease: l}, l
}

// While nothing more fits into memory, the stream is not read, and so its end is not
// seen. An instance that lost the lease meanwhile, and so the way to free memory, must
// not wait for ever.
func TestEndOfTheStreamIsSeenWithFullMemory(t *testing.T) {
	for name, c := range map[string]struct {
		ended  string // the sessions the server ends
		refuse bool   // takes no more connections then
	}{
		"the stream ends":       {ended: "backend_type = 'walsender'"},
		"the server is stopped": {ended: "application_name = 'cdc-outbox'", refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t, pgtest.Setting("wal_sender_timeout", "2s"))
			d := newDatabase(t, server.NewDatabase(t))
			d.opts.MaxBufferedBytes = 20_000
			p, behind := behindProxy(t, d)
			gate, held := d.leased()
			i := behind.startWith(Parts{Store: d.store, Sink: gate, Lease: held}).streams()
			d.publish(1, 1)
			gate.hold()
			d.insert(500, 1)
			i.full()
			p.Refuse(c.refuse)
			d.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE " + c.ended)
			eventually(t, "the end of the lease", func() bool { return !held.Held() })
			p.Refuse(false)
			gate.open()
			d.arrive()
			i.stop()
			d.wantAll()
		})
	}
}

// The server took the slot from an instance that cannot know yet, and may write. The
// successor has the slot, and waits for the lease.
func TestSuccessorWaitsForTheLease(t *testing.T) {
	all := func([]byte) bool { return true }
	for name, c := range map[string]struct {
		takeAway func(d *database, p *proxy.Proxy)
		learns   bool // the predecessor learns of it, during the wait
	}{
		"cut off, and the walsender ended": {takeAway: func(d *database, p *proxy.Proxy) {
			p.Hold(all)
			d.exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", d.walsender()))
		}},
		"the stream alone is cut off": {learns: true, takeAway: func(d *database, p *proxy.Proxy) {
			old := d.walsender()
			p.Hold(func(first []byte) bool { return bytes.Contains(first, []byte("replication")) })
			eventually(d.t, "the end of the walsender", func() bool { return d.walsender() != old })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t, pgtest.Setting("wal_sender_timeout", "15s")) // the lease: time enough for a slow successor
			d := newDatabase(t, server.NewDatabase(t))
			d.limits.monitor = usual.monitor
			p, behind := behindProxy(t, d)
			gate, held := d.leased()
			behind.startWith(Parts{Store: d.store, Sink: gate, Lease: held}).streams()
			d.publish(1, 1)
			second, lease := d.leased()
			spare := d.startWith(Parts{Store: d.store, Sink: &beforeEach{second, func() {
				if held.Held() {
					t.Error("writes while its predecessor may")
				}
			}}, Lease: lease}).standsBy()

			old := d.walsender()
			c.takeAway(d, p)
			learn := p.Hold(all) // it would leave, perhaps before the successor has the slot
			d.insert(1, 1)
			eventually(t, "the spare to have the slot", func() bool { pid := d.walsender(); return pid != 0 && pid != old })
			spare.unready("another instance shows that it reads the slot")
			if c.learns {
				learn()
			}
			d.arrive()
			p.Cut()
			spare.stop()
			d.wantAll()
		})
	}
}

// beforeEach calls a function before each delivery.
type beforeEach struct {
	sink.Sink
	do func()
}

func (b *beforeEach) Deliver(ctx context.Context, events []*transform.Event, reject sink.Reject) error {
	b.do()
	return b.Sink.Deliver(ctx, events, reject)
}

// The monitor ends with a stop, and everything in flight may take longer than
// the lease.
func TestLeaseIsRenewedWhileItDrains(t *testing.T) {
	d := outbox(t)
	gate, held := d.leased()
	i := d.startWith(Parts{Store: d.store, Sink: gate, Lease: held}).streams()
	d.publish(1, 1)
	gate.hold()
	d.insert(1, 1)
	gate.waits(t)
	i.cancel()
	eventually(t, "a question after the monitor's end", func() bool {
		readers, err := catalog.ReadReaders(t.Context(), d.conn, d.opts.Slot)
		return err == nil && i.role() == session.Stopping && len(readers) == 1
	})
	gate.open()
	d.finish(i)
}
