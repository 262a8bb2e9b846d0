package stream

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Failure mode 21: a standby takes over while behind: the server itself, as before the
// last events.
func TestE2EFailoverToAStandbyThatIsBehind(t *testing.T) {
	const text = `left timeline 1 at .* before the checkpoint`
	t.Run("while stopped", func(t *testing.T) {
		t.Parallel()
		f := newFailover(t)
		i := f.d.run().streams()
		f.d.publish(3, 1)
		i.stop()
		f.promote()
		f.d.run().wantEnd(failure.Loss, text)

		// The lost events' positions are used again; without the check the new
		// events would be skipped.
		f.d.insert(3, 1)
		f.d.run().wantEnd(failure.Loss, text)
		wantOnce(t, f.d.topic, f.d.ids[:3])
	})
	// A part read and not acked yet is in no checkpoint.
	t.Run("with events in flight", func(t *testing.T) {
		t.Parallel()
		f := newFailover(t)
		f.d.opts.DrainTimeout = time.Millisecond
		f.d.gate.hold()
		i := f.d.run().streams()
		f.d.insert(3, 1)
		i.inFlight(3)
		f.promote()
		i.wantEnd(failure.Loss, text)
	})
}

// In a failover the URL may lead to a standby before the promotion, or to a standby
// never promoted. A standby is behind, and its slot missing or not decodable: no loss
// until the standby is the primary.
func TestE2EStandbyIsNotJudged(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	i := f.d.run().streams()
	f.d.publish(3, 1)
	i.stop()
	f.standIn()
	i = f.d.run()
	eventually(t, "a look at the standby", func() bool {
		ended := i.logs.FilterMessage("PostgreSQL session ended, will reconnect").All()
		return slices.ContainsFunc(ended, func(e observer.LoggedEntry) bool {
			return matches("is a standby", e.ContextMap()["error"].(string))
		})
	})
	f.d.exec("SELECT pg_promote()")
	i.wantEnd(failure.Loss, `left timeline 1 at .* before the checkpoint`)
	wantOnce(t, f.d.topic, f.d.ids[:3])
}

// Failure mode 46: the new primary lacks a transaction read to the first half. The new
// events have positions within the lost transaction.
func TestE2EFailoverInTheMiddleOfATransaction(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	f.d.opts.MaxBufferedBytes = 20_000
	f.d.opts.DrainTimeout = time.Millisecond
	f.d.gate.hold()
	i := f.d.run().streams()
	release := make(chan struct{})
	defer close(release)
	blockSaves(f.d.store, release) // or the checkpoint has an idle position beyond the standby's end
	f.d.insert(5000, 5000)
	i.full()
	read := f.d.lsn("SELECT pg_current_wal_flush_lsn()::text")
	f.promote()
	f.d.insert(20, 1)
	if now := f.d.lsn("SELECT pg_current_wal_flush_lsn()::text"); now >= read {
		t.Fatalf("the new primary is at %s, beyond the old one's %s: this proves nothing", now, read)
	}
	f.d.gate.open()
	i.wantEnd(failure.Loss, `half read: .* left timeline 1 at`)
}

// Failure mode 47: the disk is put back to an earlier time without any sign, and the new
// log grows past everything read of the old log.
func TestE2EDiskPutBack(t *testing.T) {
	// grow writes new events until the log is beyond lsn.
	grow := func(f *failover, lsn pg.LSN) (ids []string) {
		eventually(f.t, "the log to grow past what was read", func() bool {
			ids = append(ids, f.d.insert(20, 1)...)
			return f.d.lsn("SELECT pg_current_wal_flush_lsn()::text") > lsn
		})
		return ids
	}
	for name, c := range map[string]struct {
		before func(f *failover) // while the old log is read
		text   string
	}{
		"after events": {func(f *failover) {
			f.d.insert(300, 3)
			arrive(f.t, f.d.topic, 300)
			last := f.d.topic.all()[299].position.CommitLSN
			eventually(f.t, "the checkpoint to follow", func() bool { return f.d.store.stored().LSN > last })
		}, `not the one that was read .* transaction`},
		"after a quiet time": {func(f *failover) {
			f.d.exec("CREATE TABLE busy (v text)")
			f.d.exec("INSERT INTO busy SELECT repeat('x', 500) FROM generate_series(1, 2000)")
			mark := f.d.lsn("SELECT pg_current_wal_flush_lsn()::text")
			eventually(f.t, "the checkpoint to follow", func() bool { return f.d.store.stored().LSN >= mark })
		}, `not the one that was read .* where none`},
	} {
		t.Run(name+", while stopped", func(t *testing.T) {
			t.Parallel()
			f := newFailover(t)
			i := f.d.run().streams()
			c.before(f)
			i.stop()
			stored := f.d.store.stored()
			f.putBack()
			grow(f, stored.LSN)
			f.d.run().wantEnd(failure.Loss, c.text)
			f.d.run().wantEnd(failure.Loss, c.text) // and still, for the next instance
			if got := f.d.store.stored().LSN; got != stored.LSN {
				t.Errorf("the checkpoint went from %s to %s", stored.LSN, got)
			}
			if got := f.d.confirmed(); got >= stored.LSN {
				t.Errorf("the slot was confirmed up to %s, although the log is another one", got)
			}
		})
		t.Run(name+", under a running connector", func(t *testing.T) {
			t.Parallel()
			f := newFailover(t)
			p, behind := behindProxy(t, f.d)
			i := behind.run().streams()
			c.before(f)
			p.Refuse(true)
			p.Cut()
			stored := f.d.store.stored()
			f.putBack()
			grow(f, stored.LSN)
			p.Refuse(false)
			i.wantEnd(failure.Loss, c.text)
		})
	}
}

// A crashed server forgets how far the slot was confirmed. The repeated part is known,
// and no other log.
func TestE2ESlotThatWentBackInACrash(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	d := newDatabase(t, server.NewDatabase(t))
	i := d.run().streams()
	d.publish(30, 3)
	i.stop()
	if got, want := d.confirmed(), d.store.stored().LSN; got != want {
		t.Fatalf("the slot is confirmed up to %s, want %s", got, want)
	}
	server.Restart(t, pgtest.Immediate)
	d.connect()
	if got, want := d.confirmed(), d.store.stored().LSN; got >= want {
		t.Fatalf("the slot is at %s after the crash, the checkpoint at %s: this proves nothing", got, want)
	}
	i = d.run().streams()
	d.publish(3, 1)
	eventually(t, "the slot to be confirmed", func() bool { return d.confirmed() > d.topic.all()[32].position.CommitLSN })
	d.finish(i)
}

// failover is a server with a way back to an earlier state: on a new timeline as a
// promoted standby, or on the same timeline as a disk put back.
type failover struct {
	t       *testing.T
	server  *pgtest.Server
	d       *database
	standby pgtest.Files
}

// newFailover starts a server, lets a connector begin, and takes the standby.
func newFailover(t *testing.T) *failover {
	t.Helper()
	server := pgtest.Start(t)
	f := &failover{t: t, server: server}
	f.d = newDatabase(t, server.NewDatabase(t))
	f.d.run().streams().stop()
	server.Stop(t, pgtest.Fast)
	f.standby = server.Files(t)
	server.Resume(t)
	f.d.connect()
	return f
}

func (f *failover) promote() {
	f.t.Helper()
	f.standIn()
	f.d.exec("SELECT pg_promote()")
}

// standIn puts the standby in the server's place.
func (f *failover) standIn() {
	f.t.Helper()
	f.replace()
	f.server.StandBy(f.t)
	f.server.Resume(f.t)
	f.d.connect()
}

// putBack makes the server as it was at the copy, as from a snapshot of the disk: nothing
// tells of later events.
func (f *failover) putBack() {
	f.t.Helper()
	f.replace()
	f.server.Resume(f.t)
	f.d.connect()
}

// replace stops the server and puts the copy's files in the place of its own.
func (f *failover) replace() {
	f.t.Helper()
	f.server.Stop(f.t, pgtest.Immediate)
	f.server.Become(f.t, f.standby)
}
