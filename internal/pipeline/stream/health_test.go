package stream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// If the store fails before a session, health and log name the store, and not PostgreSQL.
func TestFailingStoreIsBlamedItself(t *testing.T) {
	d := outbox(t)
	dir := filepath.Join(t.TempDir(), "volume")
	must.OK(t, os.Mkdir(dir, 0o755))
	s := must.Get(store.NewFile(filepath.Join(dir, "checkpoint.json"), "k"))(t)
	if err := os.Remove(dir); err != nil { // for everybody, also a superuser
		t.Fatal(err)
	}
	i := d.start(s, &gate{topic: d.topic})
	eventually(t, "the reason", func() bool {
		ok, reasons := i.health.Ready()
		return !ok && strings.Contains(strings.Join(reasons, "\n"), "checkpoint store: save checkpoint")
	})
	if _, reasons := i.health.Ready(); strings.Contains(strings.Join(reasons, "\n"), "PostgreSQL") {
		t.Errorf("reasons %q", reasons)
	}
	if st := i.status(); st.PostgresError != "" || !strings.Contains(st.CheckpointError, "no such file") {
		t.Errorf("status %+v", st)
	}
	eventually(t, "a warning", func() bool { return i.logs.FilterMessageSnippet("the checkpoint store failed").Len() > 0 })
	if n := i.logs.FilterMessageSnippet("PostgreSQL session ended").Len(); n > 0 {
		t.Errorf("%d lines blame PostgreSQL", n)
	}

	must.OK(t, os.Mkdir(dir, 0o755))
	i.streams()
	if ok, reasons := i.health.Ready(); !ok {
		t.Errorf("not ready once the store works: %q", reasons)
	}
	d.publish(1, 1)
	i.stop()
}

// Rows of the snapshot, transactions with events (and none without), and the last event,
// as in Debezium.
func TestLastTransactionsAndSnapshotShow(t *testing.T) {
	d := outbox(t)
	d.opts.Snapshot = true
	d.insert(3, 3)
	i := d.run().streams()
	d.arrive()
	d.exec("CREATE TABLE other (v int); INSERT INTO other VALUES (1)")
	d.publish(4, 2)
	var last *delivery.Last
	eventually(t, "the last event", func() bool {
		last = i.status().LastEvent
		return last != nil && last.ID == "7"
	})
	if last.Seq != 1 || last.LSN != d.topic.all()[6].position.CommitLSN.String() || last.CommittedAt == nil || last.AcknowledgedAt.IsZero() {
		t.Errorf("the last event is %+v", last)
	}
	i.stop()
	if m := i.metrics; m.transactions != 2 || m.rows != 3 || !slices.Equal(m.snapshots, []bool{true, false}) {
		t.Errorf("%d transactions, %d rows of snapshots, %v", m.transactions, m.rows, m.snapshots)
	}
}

// Updates by an application still marking rows as published, and events without keys,
// fill metrics and not the log: the first is told at once, the others are summed up, at
// the latest by the stop.
func TestFloodsAreSummedUp(t *testing.T) {
	t.Parallel()
	const n = 500
	d := sharedDatabase(t)
	d.opts.OnBadEvent = transform.BadEventSkip
	i := d.run().streams()
	d.insert(n, 100)
	d.exec("UPDATE outbox SET payload = '{}'")
	d.exec(fmt.Sprintf("INSERT INTO outbox SELECT 'bad-' || n, 'order', '', 'Placed', '{}' FROM generate_series(1, %d) n", n))
	eventually(t, "all to be counted", func() (all bool) {
		i.metrics.locked(func() { all = len(i.metrics.ignored) == n && len(i.metrics.skipped) == n })
		return all
	})
	i.stop()

	for message, of := range map[string]string{
		"update of an outbox row ignored":            "public.outbox",
		"event skipped, as errors.on_bad_event says": string(transform.ReasonNullKey),
	} {
		total, sums := 0, 0
		logged := i.logs.FilterMessage(message).FilterLevelExact(zap.WarnLevel).All()
		for _, entry := range logged {
			fields := entry.ContextMap()
			more, isSum := fields["more"].(int64)
			if !isSum {
				total++
				continue
			}
			sums++
			total += int(more)
			first, last := fields["first"].(map[string]any), fields["last"].(map[string]any)
			if fields["of"] != of || first["lsn"] == "" || last["lsn"] == "" {
				t.Errorf("%s: summary %v", message, fields)
			}
		}
		if total != n || sums == 0 || len(logged) > n/10 {
			t.Errorf("%s: %d in %d lines, of %d", message, total, len(logged), n)
		}
	}
}

// unreadable is a checkpoint store with failing loads on demand.
type unreadable struct {
	checkpoint.Store
	down atomic.Bool
}

func (u *unreadable) Load(ctx context.Context) (checkpoint.Checkpoint, bool, error) {
	if u.down.Load() {
		return checkpoint.Checkpoint{}, false, errors.New("the store is away")
	}
	return u.Store.Load(ctx)
}

// A spare without access to the checkpoint could not take over: it is not ready, says
// why, and is ready again with the store.
func TestSpareWithoutItsStoreIsNotReady(t *testing.T) {
	d := outbox(t)
	d.limits.spareLook, d.limits.spareSilence = 20*time.Millisecond, 100*time.Millisecond
	d.run().streams()
	away := &unreadable{Store: d.store}
	spare := d.start(away, &gate{topic: d.topic})
	eventually(t, "a spare", func() bool { return spare.role() == session.Standby && spare.ready() })
	away.down.Store(true)
	eventually(t, "the spare not to be ready", func() bool { return !spare.ready() })
	if _, reasons := spare.health.Ready(); !slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(r, "the store is away") }) {
		t.Errorf("reasons %q", reasons)
	}
	eventually(t, "a line in the log, which follows readiness", func() bool { return spare.logs.FilterMessage("this spare could not take over").Len() > 0 })
	away.down.Store(false)
	eventually(t, "the spare to be ready again", spare.ready)
	if got := spare.role(); got != session.Standby {
		t.Errorf("role %s", got)
	}
}

// inPostgres is the checkpoint store in the outbox's own database.
func (d *database) inPostgres() checkpoint.Store {
	d.t.Helper()
	s := must.Get(store.NewPostgres(d.t.Context(), d.opts.URL, "checkpoints", "a"))(d.t)
	d.t.Cleanup(s.Close)
	return s
}

// If the server process of the checkpoint store is silent, its connection is given up,
// and the next save uses another.
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

// The creation of a slot waits for every transaction for any time, and names them. (The
// end of a silent server is for catalog's tests.)
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

// An endless save counts as failed after a while, and the first save of the next session
// can begin.
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

// An endless load counts as failed, too.
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

// A silent server shows in readiness although nobody writes, long before anything is
// given up.
func TestReadinessSeesASilentServerWhileItIsQuiet(t *testing.T) {
	if worst := usual.silenceLimit + standbyPoll + time.Second; worst > 5*time.Second || usual.silenceLimit <= usual.monitor {
		t.Errorf("%s, with the page's second: an outage is not visible within 5 s, or a look does not count as one", worst)
	}
	d := outbox(t)
	d.opts.LivenessTimeout, d.limits.stalled = 10*patience, 10*patience
	p, d := behindProxy(t, d)
	i := d.run().streams()
	eventually(t, "readiness", i.ready)
	p.Set(proxy.Up, proxy.Fault{Swallow: true})
	p.Set(proxy.Down, proxy.Fault{Swallow: true})
	eventually(t, "the silence to be seen", func() bool {
		_, reasons := i.health.Ready()
		return strings.Contains(strings.Join(reasons, "\n"), "neither the stream nor a look")
	})
	p.Set(proxy.Up, proxy.Fault{})
	p.Set(proxy.Down, proxy.Fault{})
	p.Cut() // the swallowed bytes are missing
	eventually(t, "readiness again", i.ready)
	i.stop()
}

// A silent server process of the stream shows in readiness also without anything to send,
// long before liveness_timeout.
func TestReadinessSeesASilentStreamWhileTheServerIsQuiet(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgtest.Start(t).NewDatabase(t))
	d.opts.LivenessTimeout = 10 * patience
	d.limits.stalled, d.limits.monitor, d.limits.quiet = time.Second, 50*time.Millisecond, 50*time.Millisecond
	i := d.run().streams()
	eventually(t, "readiness", i.ready)
	// No other writes to the log.
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

// The last look at slot and log would look like the present: it is not shown while the
// server is away, nor while looks fail.
func TestSlotIsUnknownWhilePostgreSQLIsAway(t *testing.T) {
	d := outbox(t)
	line, behind := pgtest.Behind(t, d.url)
	d.opts.URL = behind
	i := d.run().streams()
	known := func() bool {
		st := i.status()
		return st.ServerLSN != "" && st.SlotLagBytes != nil && st.RetainedBytes != nil && st.WALStatus != ""
	}
	unknown := func() bool {
		st := i.status()
		return st.ServerLSN == "" && st.SlotLagBytes == nil && st.RetainedBytes == nil && st.WALStatus == "" && st.Forecast == nil
	}
	eventually(t, "a look at the slot", known)

	line.Refuse(true)
	kill := func(kind string) {
		d.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = '` + kind + `'`)
	}
	kill("client backend") // the stream goes on for a while
	eventually(t, "a failing look to make the slot unknown", unknown)
	kill("walsender")
	eventually(t, "the end of the session", func() bool { return i.role() == session.Starting })
	if !unknown() {
		t.Errorf("without a session it shows %+v", i.status())
	}
	before := i.metrics.forgotten()
	line.Refuse(false)
	eventually(t, "another look", known)
	i.stop()
	if !unknown() || i.metrics.forgotten() == before {
		t.Errorf("after the stop it shows %+v", i.status())
	}
}
