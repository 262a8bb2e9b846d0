package stream

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/role"
	"github.com/cdc-outbox/cdc-outbox/internal/proxy"
)

// Failure modes 9 and 42.
func TestSpareStandsByAndTakesOver(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	s, to := &fakeStore{}, &topic{}
	holder := d.start(s, &gate{topic: to}).streams()
	ids := d.insert(5, 1)
	arrive(t, to, 5)

	spare := d.start(s, &gate{topic: to})
	eventually(t, "the spare to stand by", func() bool { return spare.role() == role.Standby })
	if ok, reasons := spare.health.Ready(); !ok {
		t.Errorf("the spare is not ready: %v", reasons)
	}
	ids = append(ids, d.insert(5, 1)...)
	arrive(t, to, 10)

	holder.stop()
	ids = append(ids, d.insert(5, 1)...)
	arrive(t, to, 15)
	spare.stop()
	wantOnce(t, to, ids)
}

// Two instances find nothing and create everything at the same time.
func TestTwoFirstStartsAtOnce(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	s, to := &fakeStore{}, &topic{}
	a, b := d.start(s, &gate{topic: to}), d.start(s, &gate{topic: to})
	eventually(t, "one to stream and one to stand by", func() bool {
		return a.role() == role.Active && b.role() == role.Standby || b.role() == role.Active && a.role() == role.Standby
	})
	ids := d.insert(5, 1)
	arrive(t, to, 5)
	a.stop()
	b.streams()
	ids = append(ids, d.insert(5, 1)...)
	arrive(t, to, 10)
	b.stop()
	wantOnce(t, to, ids)
}

// A spare that is cut off from PostgreSQL for a moment is ready again after.
func TestSpareIsReadyAgainAfterAReconnect(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	s, to := &fakeStore{}, &topic{}
	d.start(s, &gate{topic: to}).streams()
	p, behind := behindProxy(t, d)
	spare := behind.start(s, &gate{topic: to})
	eventually(t, "the spare to stand by", func() bool { return spare.role() == role.Standby })
	p.Cut()
	eventually(t, "a reconnect", func() bool { return spare.metrics.reconnected() > 0 })
	eventually(t, "the spare to be ready", func() bool { ok, _ := spare.health.Ready(); return ok })
	if st := spare.health.Status().(Status); st.Role != role.Standby || st.PostgresError != "" {
		t.Errorf("the spare is %s, with error %q", st.Role, st.PostgresError)
	}
}

// Failure mode 39: the holder is cut off, a spare takes over, the old holder
// comes back with acks and positions of its own.
func TestOldHolderDoesNotSetTheCheckpointBack(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	s, to := &fakeStore{}, &topic{}
	p, behind := behindProxy(t, d)
	oldGate := &gate{topic: to}
	old := behind.start(s, oldGate).streams()
	ids := d.insert(3, 1)
	arrive(t, to, 3)
	oldGate.hold()
	ids = append(ids, d.insert(3, 1)...)
	eventually(t, "events in flight", func() bool { _, waiting := oldGate.unacked(); return waiting })

	p.Refuse(true)
	p.Cut()
	spare := d.start(s, &gate{topic: to}).streams()
	ids = append(ids, d.insert(3, 1)...)
	arrive(t, to, 9)
	eventually(t, "the spare's checkpoint", func() bool { return s.stored().LSN > to.all()[8].position.CommitLSN })
	taken := s.stored()

	oldGate.open() // what was in flight is acked after all, and saved
	arrive(t, to, 10)
	if got := s.stored(); got.LSN < taken.LSN || got.Epoch != taken.Epoch {
		t.Errorf("the checkpoint went from %s in epoch %d to %s in epoch %d", taken.LSN, taken.Epoch, got.LSN, got.Epoch)
	}
	p.Refuse(false)
	spare.stop()
	if err := old.wait(); !errors.Is(err, ErrTakenOver) || failure.ClassOf(err) != failure.Transient {
		t.Errorf("the old holder's Run = %v, want it to start over", err)
	}
	if got := s.stored(); got.LSN < taken.LSN {
		t.Errorf("the checkpoint went from %s to %s", taken.LSN, got.LSN)
	}
	d.start(s, &gate{topic: to}).streams()
	ids = append(ids, d.insert(1, 1)...)
	eventually(t, "the last event", func() bool { all := to.ids(); return all[len(all)-1] == ids[len(ids)-1] })
	wantAll(t, to, ids)
}

// Without stored checkpoints an instance does not learn that another one has
// read the slot in the meantime, only how far. If it had read the first half of
// a transaction, nothing more of that one comes. In a quiet outbox the position
// must still go on.
func TestSecondHalfOfATransactionReadByAnotherInstance(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	d.opts.MaxBufferedBytes = 20_000
	d.exec("CREATE TABLE busy (v text)")
	to := &topic{}
	p, behind := behindProxy(t, d)
	g := &gate{topic: to}
	first := behind.start(&fakeStore{forget: true}, g).streams()
	g.hold()
	ids := d.insert(500, 500)
	eventually(t, "half of a transaction in flight", func() bool { return first.metrics.inFlight() > 18_000 })
	p.Refuse(true)
	p.Cut()
	second := d.start(&fakeStore{forget: true}, &gate{topic: to}).streams()
	arrive(t, to, len(ids))
	second.stop()
	g.open()
	p.Refuse(false)
	eventually(t, "the first to read the slot again", func() bool { return d.walsender() != 0 })
	d.exec("INSERT INTO busy SELECT repeat('x', 500) FROM generate_series(1, 2000)")
	mark := d.lsn("SELECT pg_current_wal_flush_lsn()::text")
	eventually(t, "the slot to follow", func() bool { return d.confirmed() >= mark })
	first.stop()
	wantAll(t, to, ids)
}

// behindProxy returns the same database through a proxy.
func behindProxy(t *testing.T, d *database) (*proxy.Proxy, *database) {
	t.Helper()
	at, behind := mustParse(t, d.url), *d
	p, err := proxy.Listen("127.0.0.1:0", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	at.Host = p.Addr()
	behind.opts.URL = at.String()
	return p, &behind
}

// A slot that somebody created, for example `cdc-outbox setup`, is adopted.
func TestAdoptsASlotWithoutCheckpoint(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	d.exec("CREATE PUBLICATION cdc_outbox FOR TABLE outbox")
	d.exec("SELECT pg_create_logical_replication_slot('" + d.opts.Slot + "', 'pgoutput')")
	ids := d.insert(3, 1)
	g := &gate{topic: &topic{}}
	i := d.start(&fakeStore{}, g).streams()
	ids = append(ids, d.insert(3, 1)...)
	arrive(t, g.topic, 6)
	i.stop()
	wantOnce(t, g.topic, ids)
}

func TestSnapshotPublishesWhatIsThereOnceAndThenStreams(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	d.opts.Snapshot = true
	s, g := &fakeStore{}, &gate{topic: &topic{}}
	ids := d.insert(50, 50)
	i := d.start(s, g)
	arrive(t, g.topic, 50)
	i.streams()
	ids = append(ids, d.insert(5, 1)...)
	arrive(t, g.topic, 55)
	i.stop()
	i = d.start(s, g).streams() // no second snapshot
	ids = append(ids, d.insert(5, 1)...)
	arrive(t, g.topic, 60)
	i.stop()
	wantOnce(t, g.topic, ids)
}

// A crash in the middle of the snapshot, with nothing drained.
func TestSnapshotIsRepeatedAfterACrash(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	d.opts.Snapshot = true
	d.opts.DrainTimeout = time.Millisecond
	s, g := &fakeStore{}, &gate{topic: &topic{}}
	ids := d.insert(50, 50)
	g.hold()
	i := d.start(s, g)
	eventually(t, "the snapshot to be in flight", func() bool { _, waiting := g.unacked(); return waiting })
	ids = append(ids, d.insert(1, 1)...)
	i.stop()
	if !s.stored().Snapshot {
		t.Error("the checkpoint says that the snapshot is done")
	}
	g.open()
	i = d.start(s, g).streams()
	ids = append(ids, d.insert(5, 1)...)
	eventually(t, "the last event", func() bool { all := g.topic.ids(); return len(all) > 0 && all[len(all)-1] == ids[len(ids)-1] })
	eventually(t, "the checkpoint after the snapshot", func() bool { return !s.stored().Snapshot })
	i.stop()
	wantAll(t, g.topic, ids)
}

// Without a checkpoint nobody knows what was published. That a checkpoint is
// gone, or has another key, is no reason to publish the whole table again.
func TestSnapshotIsNotPublishedAgainForWantOfACheckpoint(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	d.opts.Snapshot = true
	g := &gate{topic: &topic{}}
	ids := d.insert(20, 20)
	i := d.start(&fakeStore{}, g)
	arrive(t, g.topic, 20)
	i.streams().stop()
	d.start(&fakeStore{}, g).wantEnd(failure.Config, "source.snapshot is initial, and slot .* exists, .* but there is no checkpoint")
	d.opts.Snapshot = false // as the remedy says
	i = d.start(&fakeStore{}, g).streams()
	ids = append(ids, d.insert(1, 1)...)
	arrive(t, g.topic, len(ids))
	i.stop()
	wantOnce(t, g.topic, ids)
}

// A first start that ends between the creation of the slot and its first
// checkpoint is done once more: nobody has read the slot.
func TestSnapshotIsStillOwedAfterAFirstStartThatWasCutShort(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	d.opts.Snapshot = true
	d.ends = time.Millisecond
	s, g := &fakeStore{}, &gate{topic: &topic{}}
	reached := make(chan struct{}, 100)
	s.hook(func(ctx context.Context, cp checkpoint.Checkpoint) error {
		if cp.Creating {
			return nil
		}
		reached <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	ids := d.insert(20, 20)
	i := d.start(s, g)
	select {
	case <-reached:
	case <-time.After(patience):
		t.Fatal("no first checkpoint")
	}
	i.stop()
	s.hook(nil)
	d.ends = patience
	i = d.start(s, g).streams()
	arrive(t, g.topic, 20)
	ids = append(ids, d.insert(1, 1)...)
	arrive(t, g.topic, len(ids))
	i.stop()
	wantOnce(t, g.topic, ids)
}

// The snapshot survives a broken connection within one process.
func TestSnapshotIsRepeatedAfterAReconnect(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	d.opts.Snapshot = true
	ids := d.insert(3000, 3000)
	d.opts.MaxBufferedBytes = 20_000
	p, behind := behindProxy(t, d)
	s, g := &fakeStore{}, &gate{topic: &topic{}}
	g.hold()
	i := behind.start(s, g)
	eventually(t, "a full buffer", func() bool { return i.metrics.inFlight() > 18_000 })
	p.Cut()
	g.open()
	i.streams()
	ids = append(ids, d.insert(5, 1)...)
	eventually(t, "the last event", func() bool { all := g.topic.ids(); return len(all) > 0 && all[len(all)-1] == ids[len(ids)-1] })
	i.stop()
	wantAll(t, g.topic, ids)
}

// A save that may have reached the store although it failed is not taken for
// another instance's.
func TestSaveOfUnknownOutcomeIsOurOwn(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	s, g := &fakeStore{}, &gate{topic: &topic{}}
	i := d.start(s, g).streams()
	ids := d.insert(1, 1)
	arrive(t, g.topic, 1)
	lost := false
	s.hook(func(_ context.Context, cp checkpoint.Checkpoint) error {
		if lost || cp.Epoch == s.stored().Epoch {
			return nil
		}
		lost = true
		s.mu.Lock()
		s.cp = &cp
		s.mu.Unlock()
		return errors.New("the answer was lost")
	})
	d.kill()
	ids = append(ids, d.insert(1, 1)...)
	arrive(t, g.topic, 2)
	i.stop()
	wantOnce(t, g.topic, ids)
	if got := s.stored().LSN; got <= g.topic.all()[1].position.CommitLSN {
		t.Errorf("the checkpoint stayed at %s", got)
	}
}
