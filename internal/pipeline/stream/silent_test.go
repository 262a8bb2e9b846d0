package stream

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/role"
	"github.com/cdc-outbox/cdc-outbox/internal/proxy"
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
	i := d.start(d.inPostgres(), &gate{topic: d.topic}).streams()
	d.publish(1, 1)
	pgtest.Freeze(t, d.url, `datname = current_database() AND application_name = 'cdc-outbox checkpoint'`)
	d.publish(1, 1)
	end := d.lsn("SELECT pg_current_wal_lsn()::text")
	eventually(t, "the slot to be confirmed up to the last event", func() bool { return d.confirmed() >= end })
	d.finish(i)
}

// A spare whose server process says nothing any more looks through another one,
// and takes over.
func TestSilentSpareTakesOver(t *testing.T) {
	d := outbox(t)
	first := d.run().streams()
	u := mustParse(t, d.url)
	u.RawQuery = "application_name=spare"
	spare := *d
	spare.opts.URL = u.String()
	second := spare.start(d.store, &gate{topic: d.topic})
	eventually(t, "a spare", func() bool { return second.role() == role.Standby })
	pgtest.Freeze(t, d.url, `datname = current_database() AND application_name = 'spare'`)
	first.stop()
	second.streams()
	d.publish(1, 1)
	d.finish(second)
}

// The creation of a slot waits for every transaction for as long as it takes,
// and says for which; a server that does not answer meanwhile is left.
func TestSlotCreationSaysWhatItWaitsFor(t *testing.T) {
	d := outbox(t)
	p, behind := behindProxy(t, d)
	writer := *d
	writer.connect()
	writer.exec("SET application_name = 'a long report'; BEGIN; SELECT pg_current_xact_id()")
	i := behind.run()
	waits := func() bool {
		_, reasons := i.health.Ready()
		return slices.ContainsFunc(reasons, func(r string) bool {
			return strings.Contains(r, "the creation of slot") && strings.Contains(r, "a long report") && strings.Contains(r, "open for")
		})
	}
	eventually(t, "the transaction that is waited for", waits)
	p.Set(proxy.Down, proxy.Fault{Swallow: true})
	eventually(t, "the session to be given up", func() bool { return i.metrics.reconnected() > 0 })
	p.Set(proxy.Down, proxy.Fault{})
	p.Cut()
	eventually(t, "the transaction that is waited for", waits)
	writer.exec("COMMIT")
	i.streams().stop()
}

// A save that does not end has failed at some time, and the next session's first
// one has its turn.
func TestStandingSaveHoldsUpNoSession(t *testing.T) {
	d := outbox(t)
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
	i := d.run().streams()
	ready := func() bool { ok, _ := i.health.Ready(); return ok }
	eventually(t, "readiness", ready)
	// Nothing else shall write to the log.
	defer pgtest.Freeze(t, d.url, `backend_type IN ('background writer', 'checkpointer', 'autovacuum launcher')`)()
	end := d.lsn("SELECT pg_current_wal_lsn()::text")
	eventually(t, "everything to be confirmed", func() bool { return d.confirmed() >= end })
	thaw := pgtest.Freeze(t, d.url, `backend_type = 'walsender'`)
	eventually(t, "the silence to be seen", func() bool { return !ready() })
	thaw()
	eventually(t, "readiness again", ready)
	i.stop()
}
