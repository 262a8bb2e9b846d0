package stream

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/role"
)

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// Failure mode 3.
func TestKilledWalsenderLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	g := &gate{topic: &topic{}}
	i := d.start(&fakeStore{}, g).streams()
	defer d.watch(g)()
	var ids []string
	for range 5 {
		ids = append(ids, d.insert(20, 7)...)
		d.kill()
	}
	arrive(t, g.topic, len(ids))
	i.stop()
	wantOnce(t, g.topic, ids)
}

// Failure mode 3: what is in flight when the connection breaks is neither sent
// again nor confirmed by the next connection.
func TestKilledWalsenderWithEventsInFlight(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	g := &gate{topic: &topic{}}
	i := d.start(&fakeStore{}, g).streams()
	ids := d.insert(3, 1)
	arrive(t, g.topic, len(ids))
	g.hold()
	stopWatching := d.watch(g)
	defer stopWatching()
	ids = append(ids, d.insert(30, 4)...)
	eventually(t, "the events to be taken in", func() bool { return i.health.Status().(Status).InFlightEvents == 30 })
	for range 3 {
		d.kill()
		i.streams()
	}
	ids = append(ids, d.insert(5, 1)...)
	eventually(t, "the events to be taken in", func() bool { return i.health.Status().(Status).InFlightEvents == 35 })
	d.heard()
	first, _ := g.unacked()
	if got := d.confirmed(); got > first {
		t.Errorf("confirmed %s, beyond the first event in flight at %s", got, first)
	}
	stopWatching()
	g.open()
	arrive(t, g.topic, len(ids))
	i.stop()
	wantOnce(t, g.topic, ids)
}

// Failure modes 3 and 17: a transaction larger than the buffer, cut in the
// middle.
func TestKilledWalsenderWithinATransaction(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	d.opts.MaxBufferedBytes = 20_000
	g := &gate{topic: &topic{}}
	g.hold()
	i := d.start(&fakeStore{}, g).streams()
	ids := d.insert(2000, 2000)
	eventually(t, "a full buffer", func() bool { return i.metrics.inFlight() > 18_000 })
	pid := d.walsender()
	d.exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid))
	g.open()
	arrive(t, g.topic, len(ids))
	i.stop()
	wantOnce(t, g.topic, ids)
}

// Failure mode 38.
func TestStopDrainsAndConfirmsTheLastCommit(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	d.opts.Checkpoint.Interval = time.Hour // only the stop saves
	g := &gate{topic: &topic{}}
	g.hold()
	s := &fakeStore{}
	i := d.start(s, g).streams()
	ids := d.insert(40, 10)
	eventually(t, "the events to be taken in", func() bool { return i.health.Status().(Status).InFlightEvents == 40 })
	i.cancel()
	eventually(t, "the drain", func() bool { return i.role() == role.Stopping })
	if ok, reasons := i.health.Ready(); ok {
		t.Errorf("ready while draining: %v", reasons)
	}
	g.open()
	i.stop()
	wantOnce(t, g.topic, ids)
	last := g.topic.all()[39].position.CommitLSN
	end := d.lsn("SELECT pg_current_wal_insert_lsn()::text") // the server's other databases are written to as well
	if got := d.confirmed(); got <= last || got > end || got != s.stored().LSN {
		t.Errorf("confirmed %s and stored %s, want what is after the last commit, which began at %s, and not after %s",
			got, s.stored().LSN, last, end)
	}

	next := d.start(s, g).streams()
	more := d.insert(1, 1)
	arrive(t, g.topic, 41)
	next.stop()
	wantOnce(t, g.topic, append(ids, more...))
}

// Failure mode 38.
func TestStopGivesUpOnTheDrainAfterItsTimeout(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	d.opts.DrainTimeout = 200 * time.Millisecond
	g := &gate{topic: &topic{}}
	s := &fakeStore{}
	i := d.start(s, g).streams()
	ids := d.insert(1, 1)
	arrive(t, g.topic, 1)
	g.hold()
	defer d.watch(g)()
	ids = append(ids, d.insert(5, 1)...)
	eventually(t, "the events to be taken in", func() bool { return i.health.Status().(Status).InFlightEvents == 5 })
	i.stop()
	if logs := i.logs.FilterMessageSnippet("before everything in flight was acked"); logs.Len() != 1 {
		t.Error("the log does not say that something was given up")
	}
	first, _ := g.unacked()
	if got := d.confirmed(); got > first {
		t.Errorf("confirmed %s, beyond the first event in flight at %s", got, first)
	}
	g.open()
	d.start(s, g).streams()
	arrive(t, g.topic, len(ids))
	wantOnce(t, g.topic, ids)
}

// Failure mode 18.
func TestColumnAddedMidStream(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	g := &gate{topic: &topic{}}
	i := d.start(&fakeStore{}, g).streams()
	ids := d.insert(3, 1)
	d.exec("ALTER TABLE outbox ADD COLUMN created_at timestamptz DEFAULT now()")
	ids = append(ids, d.insert(3, 1)...)
	d.exec("ALTER TABLE outbox DROP COLUMN created_at")
	ids = append(ids, d.insert(3, 1)...)
	arrive(t, g.topic, len(ids))
	i.stop()
	wantOnce(t, g.topic, ids)
}

// Failure mode 18.
func TestColumnRenamedAwayMidStream(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	g := &gate{topic: &topic{}}
	s := &fakeStore{}
	i := d.start(s, g).streams()
	ids := d.insert(3, 1)
	d.exec("ALTER TABLE outbox RENAME COLUMN payload TO body")
	later := d.insert(3, 1)
	i.wantEnd(failure.Config, `payload`)
	wantOnce(t, g.topic, ids)
	confirmed := d.confirmed()
	d.event.Payload = "body"
	d.start(s, g).streams()
	arrive(t, g.topic, 6)
	wantOnce(t, g.topic, append(ids, later...))
	if first := g.topic.all()[3].position.CommitLSN; confirmed > first {
		t.Errorf("confirmed %s, beyond the first event after the change of the table at %s", confirmed, first)
	}
}

// Failure mode 19.
func TestOnlyInsertsArePublished(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	d.exec("ALTER TABLE outbox REPLICA IDENTITY FULL")
	g := &gate{topic: &topic{}}
	i := d.start(&fakeStore{}, g).streams()
	d.exec(`BEGIN; INSERT INTO outbox VALUES ('a', 'order', 'o', 'Placed', '{}'); DELETE FROM outbox; COMMIT`)
	d.exec(`INSERT INTO outbox VALUES ('b', 'order', 'o', 'Placed', '{}')`)
	d.exec(`INSERT INTO outbox VALUES ('b', 'order', 'o', 'Placed', '{}') ON CONFLICT (id) DO UPDATE SET payload = 'again'`)
	d.exec(`BEGIN; INSERT INTO outbox VALUES ('c', 'order', 'o', 'Placed', '{}'); SAVEPOINT s; INSERT INTO outbox VALUES ('no', 'order', 'o', 'Placed', '{}'); ROLLBACK TO s; COMMIT`)
	d.exec(`TRUNCATE outbox`)
	d.exec(`INSERT INTO outbox VALUES ('d', 'order', 'o', 'Placed', '{}')`)
	arrive(t, g.topic, 4)
	i.stop()
	wantOnce(t, g.topic, []string{"a", "b", "c", "d"})
}

// Failure mode 22.
func TestWrongPasswordIsAConfigurationError(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	at := strings.LastIndex(d.url, "@")
	d.opts.URL = d.url[:at] + "x" + d.url[at:]
	d.start(&fakeStore{}, &gate{topic: &topic{}}).wantEnd(failure.Config, `password authentication failed`)
}

// At boot the name service may start after us.
func TestUnknownHostIsTriedAgain(t *testing.T) {
	t.Parallel()
	d := sharedDatabase(t)
	d.opts.URL = "postgres://postgres@no-such-host..invalid/app" // an empty label: no name server is asked
	i := d.start(&fakeStore{}, &gate{topic: &topic{}})
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

// Failure mode 23: an idle outbox beside a busy table. The slot follows each
// mebibyte of the log by itself. (How soon is the checkpointer's to decide, and its
// tests' to say.) It runs without others beside it: they would write to the log
// too.
func TestIdleOutboxInABusyDatabaseKeepsItsSlotClose(t *testing.T) {
	d := sharedDatabase(t)
	d.exec("CREATE TABLE busy (v text)")
	i := d.start(&fakeStore{}, &gate{topic: &topic{}}).streams()
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
