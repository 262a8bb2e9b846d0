package stream

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// inPostgres is the checkpoint store in the outbox's own database.
func (d *database) inPostgres() checkpoint.Store {
	d.t.Helper()
	s, err := store.NewPostgres(d.t.Context(), d.opts.URL, "checkpoints", "a")
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(s.Close)
	return s
}

// A checkpoint store whose server process says nothing any more is given up, and
// saved in through another one.
func TestSilentCheckpointStoreIsGivenUp(t *testing.T) {
	d := outbox(t)
	d.limits.store = 500 * time.Millisecond
	i := d.start(d.inPostgres(), &gate{topic: d.topic}).streams()
	d.publish(1, 1)
	pgtest.Freeze(t, d.url, `datname = current_database() AND application_name = 'cdc-outbox checkpoint'`)
	d.publish(1, 1)
	end := d.lsn("SELECT pg_current_wal_lsn()::text")
	eventually(t, "the slot to be confirmed up to the last event", func() bool { return d.confirmed() >= end })
	d.finish(i)
}

// The creation of a slot waits for every transaction for as long as it takes,
// and says for which. (That a server is left that does not answer meanwhile is
// for catalog's tests.)
func TestSlotCreationSaysWhatItWaitsFor(t *testing.T) {
	d := outbox(t)
	writer := *d
	writer.connect()
	writer.exec("SET application_name = 'a long report'; BEGIN; SELECT pg_current_xact_id()")
	i := d.run()
	waits := func() bool {
		_, reasons := i.health.Ready()
		return slices.ContainsFunc(reasons, func(r string) bool {
			return strings.Contains(r, "the creation of slot") && strings.Contains(r, "a long report") && strings.Contains(r, "open for")
		})
	}
	eventually(t, "the transaction that is waited for", waits)
	writer.exec("COMMIT")
	i.streams().stop()
}

// A save that does not end has failed at some time, and the next session's first
// one has its turn.
func TestStandingSaveHoldsUpNoSession(t *testing.T) {
	d := outbox(t)
	d.limits.store = 300 * time.Millisecond
	i := d.run().streams()
	standing := make(chan struct{})
	d.store.hook(func(ctx context.Context, _ checkpoint.Checkpoint) error {
		select {
		case standing <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	d.insert(1, 1)
	<-standing
	eventually(t, "a save that failed", func() bool {
		failed := 0
		i.metrics.locked(func() { failed = i.metrics.failures })
		return failed > 0
	})
	d.store.hook(nil)
	d.kill()
	d.publish(1, 1)
	d.finish(i)
}

// So has a checkpoint that cannot be loaded.
func TestStandingLoadIsGivenUp(t *testing.T) {
	d := outbox(t)
	d.limits.store = 100 * time.Millisecond
	standing := &deafStore{}
	i := d.start(standing, &gate{topic: &topic{}})
	eventually(t, "the reason", func() bool {
		_, reasons := i.health.Ready()
		return slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(r, errStoreSilent.Error()) })
	})
	i.stop()
}

// deafStore does not answer a load.
type deafStore struct{ fakeStore }

func (*deafStore) Load(ctx context.Context) (checkpoint.Checkpoint, bool, error) {
	<-ctx.Done()
	return checkpoint.Checkpoint{}, false, context.Cause(ctx)
}

// A server process that sends the stream and says nothing any more shows in
// readiness also where there is nothing to send, long before liveness_timeout.
func TestReadinessSeesASilentStreamWhileTheServerIsQuiet(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgtest.Start(t).NewDatabase(t))
	d.opts.LivenessTimeout = 10 * patience
	d.limits.stalled, d.limits.monitor, d.limits.quiet = time.Second, 50*time.Millisecond, 50*time.Millisecond
	i := d.run().streams()
	eventually(t, "readiness", i.ready)
	// Nothing else shall write to the log.
	defer pgtest.Freeze(t, d.url, `backend_type IN ('background writer', 'checkpointer', 'autovacuum launcher')`)()
	end := d.lsn("SELECT pg_current_wal_lsn()::text")
	eventually(t, "everything to be confirmed", func() bool { return d.confirmed() >= end })
	thaw := pgtest.Freeze(t, d.url, `backend_type = 'walsender'`)
	eventually(t, "the silence to be seen", func() bool {
		_, reasons := i.health.Ready()
		return strings.Contains(strings.Join(reasons, "\n"), "the stream has been silent")
	})
	thaw()
	eventually(t, "readiness again", i.ready)
	i.stop()
}
