package stream

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// A spare cut off from PostgreSQL for a moment is ready again afterwards.
func TestSpareIsReadyAgainAfterAReconnect(t *testing.T) {
	d := outbox(t)
	d.run().streams()
	p, behind := behindProxy(t, d)
	spare := behind.run()
	spare.standsBy()
	p.Cut()
	spare.reconnects()
	eventually(t, "the spare to be ready", spare.ready)
	if st := spare.status(); st.Role != session.Standby || st.PostgresError != "" {
		t.Errorf("the spare is %s, with error %q", st.Role, st.PostgresError)
	}
}

// Failure mode 39: the holder is cut off, a spare takes over, the old holder comes back
// with acks and positions of its own.
func TestE2EOldHolderDoesNotSetTheCheckpointBack(t *testing.T) {
	d := outbox(t)
	p, behind := behindProxy(t, d)
	oldGate := &gate{topic: d.topic}
	old := behind.start(d.store, oldGate).streams()
	d.publish(3, 1)
	oldGate.hold()
	d.insert(3, 1)
	oldGate.waits(t)

	p.Refuse(true)
	p.Cut()
	spare := d.run().streams()
	d.publish(3, 1)
	eventually(t, "the spare's checkpoint", func() bool { return d.store.stored().LSN > d.topic.all()[8].position.CommitLSN })
	taken := d.store.stored()

	oldGate.open() // the events in flight are acked after all, and saved
	arrive(t, d.topic, 10)
	if got := d.store.stored(); got.LSN < taken.LSN || got.Epoch != taken.Epoch {
		t.Errorf("the checkpoint went from %s in epoch %d to %s in epoch %d", taken.LSN, taken.Epoch, got.LSN, got.Epoch)
	}
	p.Refuse(false)
	spare.stop()
	if err := old.wait(); !errors.Is(err, ErrTakenOver) || failure.ClassOf(err) != failure.Transient {
		t.Errorf("the old holder's Run = %v, want it to start over", err)
	}
	if got := d.store.stored(); got.LSN < taken.LSN {
		t.Errorf("the checkpoint went from %s to %s", taken.LSN, got.LSN)
	}
	d.run().streams()
	d.insert(1, 1)
	d.last()
	d.wantAll()
}

// Without stored checkpoints an instance learns only how far the slot was read in the
// meantime, and not by another instance. After the first half of a transaction, no second
// half comes. In a quiet outbox the position must still go on.
func TestE2ESecondHalfOfATransactionReadByAnotherInstance(t *testing.T) {
	d := outbox(t)
	d.opts.MaxBufferedBytes = 20_000
	d.exec("CREATE TABLE busy (v text)")
	p, behind := behindProxy(t, d)
	g := &gate{topic: d.topic}
	first := behind.start(&fakeStore{forget: true}, g).streams()
	g.hold()
	d.insert(500, 500)
	first.full()
	p.Refuse(true)
	p.Cut()
	second := d.start(&fakeStore{forget: true}, &gate{topic: d.topic}).streams()
	d.arrive()
	second.stop()
	g.open()
	p.Refuse(false)
	eventually(t, "the first to read the slot again", func() bool { return d.walsender() != 0 })
	d.exec("INSERT INTO busy SELECT repeat('x', 500) FROM generate_series(1, 2000)")
	mark := d.lsn("SELECT pg_current_wal_flush_lsn()::text")
	eventually(t, "the slot to follow", func() bool { return d.confirmed() >= mark })
	first.stop()
	d.wantAll()
}

// behindProxy returns the same database through a proxy.
func behindProxy(t *testing.T, d *database) (*proxy.Proxy, *database) {
	t.Helper()
	behind := *d
	p, at := pgtest.Behind(t, d.url)
	behind.opts.URL = at
	return p, &behind
}

// A slot created by somebody, for example `cdc-outbox setup`, is adopted.
func TestAdoptsASlotWithoutCheckpoint(t *testing.T) {
	d := outbox(t)
	d.exec("CREATE PUBLICATION cdc_outbox FOR TABLE outbox")
	d.exec("SELECT pg_create_logical_replication_slot('" + d.opts.Slot + "', 'pgoutput')")
	d.insert(3, 1)
	i := d.run().streams()
	d.publish(3, 1)
	d.finish(i)
}

func TestSnapshotPublishesWhatIsThereOnceAndThenStreams(t *testing.T) {
	d := outbox(t)
	d.opts.Snapshot = true
	d.insert(50, 50)
	i := d.run()
	d.arrive()
	i.streams()
	d.publish(5, 1)
	i.stop()
	i = d.run().streams() // no second snapshot
	d.publish(5, 1)
	d.finish(i)
}

// A crash in the middle of the snapshot, with nothing drained.
func TestE2ESnapshotIsRepeatedAfterACrash(t *testing.T) {
	d := outbox(t)
	d.opts.Snapshot = true
	d.opts.DrainTimeout = time.Millisecond
	d.insert(50, 50)
	d.gate.hold()
	i := d.run()
	d.gate.waits(t)
	d.insert(1, 1)
	i.stop()
	if !d.store.stored().Snapshot {
		t.Error("the checkpoint says that the snapshot is done")
	}
	d.gate.open()
	i = d.run().streams()
	d.insert(5, 1)
	d.last()
	eventually(t, "the checkpoint after the snapshot", func() bool { return !d.store.stored().Snapshot })
	i.stop()
	d.wantAll()
}

// Without a checkpoint nobody knows the events published. A lost checkpoint, or another
// key, is no reason to publish the whole table again.
func TestSnapshotIsNotPublishedAgainForWantOfACheckpoint(t *testing.T) {
	d := outbox(t)
	d.opts.Snapshot = true
	d.insert(20, 20)
	i := d.start(&fakeStore{}, d.gate)
	d.arrive()
	i.streams().stop()
	d.start(&fakeStore{}, d.gate).wantEnd(failure.Config, "source.snapshot is initial, and slot .* exists, .* but there is no checkpoint")
	d.opts.Snapshot = false // as the remedy says
	i = d.start(&fakeStore{}, d.gate).streams()
	d.publish(1, 1)
	d.finish(i)
}

// A first start ended between the creation of the slot and its first checkpoint is done
// once more: nobody has read the slot.
func TestSnapshotIsStillOwedAfterAFirstStartThatWasCutShort(t *testing.T) {
	d := outbox(t)
	d.opts.Snapshot = true
	d.limits.close = time.Millisecond
	reached := make(chan struct{}, 100)
	d.store.hook(func(ctx context.Context, cp checkpoint.Checkpoint) error {
		if cp.Creating {
			return nil
		}
		reached <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	d.insert(20, 20)
	i := d.run()
	eventually(t, "the first checkpoint", func() bool { return len(reached) > 0 })
	i.stop()
	d.store.hook(nil)
	d.limits.close = patience
	i = d.run().streams()
	d.arrive()
	d.publish(1, 1)
	d.finish(i)
}

// With exactly-once delivery such a start ends: some rows would come twice, and without the
// slot the events deleted since would be lost.
func TestSnapshotOfAFirstStartThatWasCutShortIsNotTransacted(t *testing.T) {
	d := outbox(t)
	d.opts.Snapshot, d.limits.close = true, time.Millisecond
	x := &limitedTransactor{to: &limited{topic: d.topic, left: 1 << 30}, store: d.store}
	d.store.hook(func(_ context.Context, cp checkpoint.Checkpoint) error {
		if cp.Creating {
			return nil
		}
		return failure.Configf("mend it", "refused")
	})
	d.insert(5, 1)
	parts := Parts{Store: d.store, Transactions: &Transactions{Sink: x, Marker: x}}
	d.startWith(parts).wantEnd(failure.Config, "refused")
	d.store.hook(nil)
	at := d.text(`SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '` + d.opts.Slot + `'`)
	d.startWith(parts).wantEnd(failure.Config, "the snapshot of slot .* is gone")
	if now := d.text(`SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '` + d.opts.Slot + `'`); now != at {
		t.Errorf("the slot is at %s, want %s", now, at)
	}
}

// A former holder that goes on with the snapshot between two loads has saved another
// checkpoint, at the same position.
func TestRowsOfASnapshotMakeAnotherCheckpoint(t *testing.T) {
	at := func(rows uint32, pending bool) *checkpoint.Checkpoint {
		return &checkpoint.Checkpoint{Epoch: 1, LSN: 2, Snapshot: pending, Initial: &checkpoint.Initial{Rows: rows}}
	}
	if !sameCheckpoint(at(3, true), at(3, true), 9) {
		t.Error("the same rows make another checkpoint")
	}
	if sameCheckpoint(at(3, true), at(4, true), 9) {
		t.Error("a further row makes no other checkpoint")
	}
	if sameCheckpoint(at(3, true), at(3, false), 9) {
		t.Error("the end of the snapshot makes no other checkpoint")
	}
}

// The snapshot survives a broken connection within a single process.
func TestSnapshotIsRepeatedAfterAReconnect(t *testing.T) {
	d := outbox(t)
	d.opts.Snapshot = true
	d.insert(3000, 3000)
	d.opts.MaxBufferedBytes = 20_000
	p, behind := behindProxy(t, d)
	d.gate.hold()
	i := behind.run()
	i.full()
	p.Cut()
	d.gate.open()
	i.streams()
	d.insert(5, 1)
	d.last()
	i.stop()
	d.wantAll()
}

// A failed save, perhaps in the store nevertheless, is not taken for another instance's.
func TestSaveOfUnknownOutcomeIsOurOwn(t *testing.T) {
	d := outbox(t)
	i := d.run().streams()
	d.publish(1, 1)
	lost := false
	d.store.hook(func(_ context.Context, cp checkpoint.Checkpoint) error {
		if lost || cp.Epoch == d.store.stored().Epoch {
			return nil
		}
		lost = true
		d.store.mu.Lock()
		d.store.cp = &cp
		d.store.mu.Unlock()
		return errors.New("the answer was lost")
	})
	d.kill()
	d.publish(1, 1)
	d.finish(i)
	if got := d.store.stored().LSN; got <= d.topic.all()[1].position.CommitLSN {
		t.Errorf("the checkpoint stayed at %s", got)
	}
}

// openStore hides the checkpoint behind an open Kafka transaction of a dead holder, until the
// pipeline claims the transactional id. The next load waits at the door.
type openStore struct {
	heldStore
	open atomic.Bool
}

func (s *openStore) Load(ctx context.Context) (checkpoint.Checkpoint, bool, error) {
	if s.open.Load() {
		return checkpoint.Checkpoint{}, false, kafkalog.ErrOpenTransaction
	}
	return s.heldStore.Load(ctx)
}

type opener struct {
	transactor
	store *openStore
}

func (o *opener) Claim(context.Context) error {
	o.store.load.hold()
	o.store.open.Store(false)
	return nil
}

// An instance has claimed its transactional id to end a dead holder's transaction, but another
// instance is faster to take the slot, and claims the id, too. The first must begin anew: as a
// spare with a claim it would not claim again.
func TestSpareWithAClaimBeginsAnew(t *testing.T) {
	d := outbox(t)
	d.run().streams().stop()
	s := &openStore{heldStore: heldStore{Store: d.store}}
	s.open.Store(true)
	o := &opener{store: s}
	late := d.startWith(Parts{Store: s, Transactions: &Transactions{Sink: o, Marker: o}})
	s.load.reached(t)
	other := d.run().streams()
	s.load.open()
	if err := late.wait(); !errors.Is(err, ErrTakenOver) {
		t.Errorf("Run = %v, want %v", err, ErrTakenOver)
	}
	d.publish(5, 1)
	d.finish(other)
}
