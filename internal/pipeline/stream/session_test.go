package stream

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// Failure mode 3.
func TestE2EKilledWalsenderLosesAndRepeatsNothing(t *testing.T) {
	d := outbox(t)
	i := d.run().streams()
	defer d.watch(d.gate)()
	for range 5 {
		d.insert(20, 7)
		d.kill()
	}
	d.arrive()
	d.finish(i)
}

// Failure mode 3: events in flight at the break of the connection are neither sent again
// nor confirmed by the next connection.
func TestE2EKilledWalsenderWithEventsInFlight(t *testing.T) {
	d := outbox(t)
	i := d.run().streams()
	d.publish(3, 1)
	d.gate.hold()
	stopWatching := d.watch(d.gate)
	defer stopWatching()
	d.insert(30, 4)
	i.inFlight(30)
	for range 3 {
		d.kill()
		i.streams()
	}
	d.insert(5, 1)
	i.inFlight(35)
	d.heard()
	first, _ := d.gate.unacked()
	if got := d.confirmed(); got > first {
		t.Errorf("confirmed %s, beyond the first event in flight at %s", got, first)
	}
	stopWatching()
	d.gate.open()
	d.arrive()
	d.finish(i)
}

// Failure modes 3 and 17: a transaction larger than the buffer, cut in the
// middle.
func TestE2EKilledWalsenderWithinATransaction(t *testing.T) {
	d := outbox(t)
	d.opts.MaxBufferedBytes = 20_000
	d.gate.hold()
	i := d.run().streams()
	d.insert(2000, 2000)
	i.full()
	pid := d.walsender()
	d.exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid))
	d.gate.open()
	d.arrive()
	d.finish(i)
}

// Failure mode 38.
func TestStopDrainsAndConfirmsTheLastCommit(t *testing.T) {
	d := outbox(t)
	d.opts.Checkpoint.Interval = time.Hour // only the stop saves
	d.gate.hold()
	i := d.run().streams()
	d.insert(40, 10)
	i.inFlight(40)
	i.cancel()
	eventually(t, "the drain", func() bool { return i.role() == session.Stopping })
	if ok, reasons := i.health.Ready(); ok {
		t.Errorf("ready while draining: %v", reasons)
	}
	d.gate.open()
	d.finish(i)
	last := d.topic.all()[39].position.CommitLSN
	end := d.lsn("SELECT pg_current_wal_insert_lsn()::text") // the server's other databases are written to as well
	if got := d.confirmed(); got <= last || got > end || got != d.store.stored().LSN {
		t.Errorf("confirmed %s and stored %s, want what is after the last commit, which began at %s, and not after %s",
			got, d.store.stored().LSN, last, end)
	}

	next := d.run().streams()
	d.publish(1, 1)
	d.finish(next)
}

// Failure mode 38.
func TestStopGivesUpOnTheDrainAfterItsTimeout(t *testing.T) {
	d := outbox(t)
	d.opts.DrainTimeout = 200 * time.Millisecond
	gate, held := d.leased()
	i := d.startWith(Parts{Store: d.store, Sink: gate, Lease: held}).streams()
	d.publish(1, 1)
	gate.hold()
	defer d.watch(gate)()
	d.insert(5, 1)
	i.inFlight(5)
	i.stop()
	if held.Held() {
		t.Error("the slot is another's, and what was in flight may still be written")
	}
	if logs := i.logs.FilterMessageSnippet("before everything in flight was acked"); logs.Len() != 1 {
		t.Error("the log does not say that something was given up")
	}
	first, _ := gate.unacked()
	if got := d.confirmed(); got > first {
		t.Errorf("confirmed %s, beyond the first event in flight at %s", got, first)
	}
	d.run().streams()
	d.arrive()
	d.wantOnce()
}

// Failure mode 18.
func TestColumnAddedMidStream(t *testing.T) {
	d := outbox(t)
	i := d.run().streams()
	d.insert(3, 1)
	d.exec("ALTER TABLE outbox ADD COLUMN created_at timestamptz DEFAULT now()")
	d.insert(3, 1)
	d.exec("ALTER TABLE outbox DROP COLUMN created_at")
	d.publish(3, 1)
	d.finish(i)
}

// Failure mode 18.
func TestColumnRenamedAwayMidStream(t *testing.T) {
	d := outbox(t)
	i := d.run().streams()
	ids := d.insert(3, 1)
	d.exec("ALTER TABLE outbox RENAME COLUMN payload TO body")
	later := d.insert(3, 1)
	i.wantEnd(failure.Config, `payload`)
	wantOnce(t, d.topic, ids)
	confirmed := d.confirmed()
	d.event.Payload = "body"
	d.run().streams()
	d.arrive()
	wantOnce(t, d.topic, append(ids, later...))
	if first := d.topic.all()[3].position.CommitLSN; confirmed > first {
		t.Errorf("confirmed %s, beyond the first event after the change of the table at %s", confirmed, first)
	}
}

// Failure mode 19.
func TestOnlyInsertsArePublished(t *testing.T) {
	d := outbox(t)
	d.exec("ALTER TABLE outbox REPLICA IDENTITY FULL")
	i := d.run().streams()
	d.exec(`BEGIN; INSERT INTO outbox VALUES ('a', 'order', 'o', 'Placed', '{}'); DELETE FROM outbox; COMMIT`)
	d.exec(`INSERT INTO outbox VALUES ('b', 'order', 'o', 'Placed', '{}')`)
	d.exec(`INSERT INTO outbox VALUES ('b', 'order', 'o', 'Placed', '{}') ON CONFLICT (id) DO UPDATE SET payload = 'again'`)
	d.exec(`BEGIN; INSERT INTO outbox VALUES ('c', 'order', 'o', 'Placed', '{}'); SAVEPOINT s; INSERT INTO outbox VALUES ('no', 'order', 'o', 'Placed', '{}'); ROLLBACK TO s; COMMIT`)
	d.exec(`TRUNCATE outbox`)
	d.exec(`INSERT INTO outbox VALUES ('d', 'order', 'o', 'Placed', '{}')`)
	arrive(t, d.topic, 4)
	i.stop()
	wantOnce(t, d.topic, []string{"a", "b", "c", "d"})
}

// At boot the name service may start after us.
func TestUnknownHostIsTriedAgain(t *testing.T) {
	d := outbox(t)
	d.opts.URL = "postgres://postgres@no-such-host..invalid/app" // an empty label: no name server is asked
	i := d.run()
	eventually(t, "a second attempt", func() bool { return i.metrics.reconnected() > 1 })
	if _, reasons := i.health.Ready(); !slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(r, "no-such-host") }) {
		t.Errorf("reasons %q", reasons)
	}
	lines := i.logs.FilterMessage("PostgreSQL session ended, will reconnect").All()
	if remedy, _ := lines[0].ContextMap()["remedy"].(string); !strings.Contains(remedy, "correct the host") {
		t.Errorf("remedy %q", remedy)
	}
	i.stop()
}

// Failure mode 23: an idle outbox beside a busy table. The slot follows each mebibyte of
// the log by itself. (The time is for the checkpointer's tests.) Not parallel: others
// would write to the log, too.
func TestIdleOutboxInABusyDatabaseKeepsItsSlotClose(t *testing.T) {
	d := sharedDatabase(t)
	d.exec("CREATE TABLE busy (v text)")
	i := d.run().streams()
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for range 4 {
		mark := d.lsn("SELECT pg_current_wal_flush_lsn()::text") + 1<<20
		eventually(t, "the slot to follow", func() bool {
			<-pace.C
			d.exec("INSERT INTO busy SELECT repeat('x', 500) FROM generate_series(1, 100)")
			return d.confirmed() >= mark
		})
	}
	i.stop()
}

// Events read after the cut of a Kafka transaction wait for the next.
func TestTransactionsGatherForLess(t *testing.T) {
	for name, c := range map[string]struct {
		transactions *Transactions
		linger, want time.Duration
	}{
		"at least once":              {nil, 4 * time.Millisecond, 4 * time.Millisecond},
		"exactly once":               {&Transactions{}, 4 * time.Millisecond, time.Millisecond},
		"exactly once, never gather": {&Transactions{}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &source{transactions: c.transactions, opts: Options{Linger: c.linger}}
			if got := s.gather(); got != c.want {
				t.Errorf("gather = %v, want %v", got, c.want)
			}
		})
	}
}
