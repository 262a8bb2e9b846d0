package poll_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// TestBrokerOutageHoldsNoTransactionOpen has deliveries hang for several times the longest
// claim.
func TestBrokerOutageHoldsNoTransactionOpen(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.parts.ClaimTimeout = 200 * time.Millisecond
	f := newFault()
	f.down()
	in := w.start(f)
	w.series(0, 10, 1)
	for range 3 { // the rows become free again and again
		f.awaitDelivery(t)
		w.await("free rows", func() bool {
			tag, err := w.conn.Exec(w.ctx(), "UPDATE outbox SET event_type = event_type WHERE id IN (SELECT id FROM outbox FOR UPDATE SKIP LOCKED)")
			return err == nil && tag.RowsAffected() == 10
		})
	}
	if n := len(w.topic.all()); n > 0 {
		t.Errorf("%d records, although the broker is down", n)
	}
	f.up()
	w.published(10)
	must.OK(t, in.stop())
	w.wantInOrder(1, 10)
	if got := len(w.topic.all()); got != 10 {
		t.Errorf("%d records for 10 rows", got)
	}
}

// TestE2ESuspendedInstance has an instance hang in a delivery, as if stopped by a signal,
// until the server gives it up and another has gone on.
func TestE2ESuspendedInstance(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.parts.ClaimTimeout = time.Second
	w.series(0, 10, 1)
	f := newFault()
	f.deaf = true
	f.down()
	old := w.start(f)
	f.awaitDelivery(t)
	w.parts.ClaimTimeout = poll.DefaultOptions().ClaimTimeout
	spare := w.start(nil)
	w.published(10)
	w.series(10, 20, 1)
	w.published(20)
	f.up() // the first goes on in the middle
	w.await("the late records", func() bool { return len(w.topic.all()) > 20 })
	w.series(20, 30, 1)
	w.await("all of them", func() bool { return w.count("NOT published") == 0 && len(w.topic.values("k0")) == 30 })
	for _, in := range []*instance{old, spare} {
		must.OK(t, in.stop())
	}
	w.wantInOrder(1, 30)
	if got := len(w.topic.all()); got > 40 {
		t.Errorf("%d records for 30 rows and one batch that came late", got)
	}
}

// The server ends the transaction while its rows are delivered: by an administrator's
// command, or by a restart. The rows are free then, another instance may publish them,
// and nothing more of the delivery may come.
func TestDeliveryEndsWithItsClaim(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.parts.ClaimTimeout = 10 * time.Minute
	w.series(0, 10, 1)
	f := newFault()
	f.down()
	in := w.start(f)
	f.awaitDelivery(t)
	w.exec(w.conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name = 'cdc-outbox' AND datname = current_database() AND state = 'idle in transaction'`)
	w.await("the end of the delivery", func() bool { return in.reconnects.Load() > 0 })
	f.up()
	w.published(10)
	must.OK(t, in.stop())
	w.wantInOrder(1, 10)
	if got := len(w.topic.all()); got != 10 {
		t.Errorf("%d records for 10 rows", got)
	}
}

// TestE2ESuspendedWhileItReads has an instance stop reading in the middle of a claim, while
// its machine still answers the server's packets.
func TestE2ESuspendedWhileItReads(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.parts.ClaimTimeout = time.Second
	w.parts.DrainTimeout = 0 // or the stop would wait in vain
	w.exec(w.conn, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', 'k0', 'Placed', to_jsonb(repeat('x', 1 << 20)) FROM generate_series(1, 32)`)
	direct := w.parts.URL
	p := w.proxied()
	p.Set(proxy.Down, proxy.Fault{Delay: 5 * time.Millisecond})
	w.start(nil)
	w.await("the claim to be read", func() bool { return p.Bytes(proxy.Down) > 1<<20 })
	p.Set(proxy.Up, proxy.Fault{Swallow: true})
	p.Set(proxy.Down, proxy.Fault{Delay: time.Hour})
	w.parts.URL = direct
	w.parts.ClaimTimeout = poll.DefaultOptions().ClaimTimeout
	w.start(nil)
	w.published(32)
}

// TestE2EConnectionLostDuringDelivery ends the claim's session, with a record on its way
// and not to be taken back: the row is not marked, and comes again.
func TestE2EConnectionLostDuringDelivery(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	f := newFault()
	f.deaf = true
	f.down()
	w.insert(w.conn, "k0", 0)
	w.start(f)
	f.awaitDelivery(t)
	w.exec(w.conn, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'")
	f.up()
	w.published(2)
	if got := w.topic.all(); len(got) != 2 || got[0].id != got[1].id {
		t.Errorf("published %v, want one event twice", got)
	}
}

func TestE2EServerRestarts(t *testing.T) {
	server := pgtest.Start(t, pgtest.Setting("wal_level", "minimal"), pgtest.Setting("max_wal_senders", "0"))
	w := newWorld(t, server, serialOutbox, serialIndex)
	in := w.start(nil)
	total := 0
	for _, mode := range []pgtest.Mode{pgtest.Immediate, pgtest.Fast} {
		w.series(total, total+50, 5)
		total += 50
		server.Restart(t, mode)
		w.conn = w.connect()
	}
	w.await("all rows", func() bool { return w.count("NOT published") == 0 })
	must.OK(t, in.stop())
	w.wantInOrder(5, total)
}

// TestLongTransactionElsewhere keeps an old snapshot open: published rows cannot be
// vacuumed meanwhile.
func TestLongTransactionElsewhere(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	long := w.connect()
	w.exec(long, "BEGIN ISOLATION LEVEL REPEATABLE READ", "CREATE TABLE other (n int)", "SELECT FROM outbox")
	w.start(nil)
	w.series(0, 500, 5)
	w.published(500)
	w.wantInOrder(5, 500)
}

// TestStopFinishesTheBatch stops an instance during a delivery.
func TestStopFinishesTheBatch(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	f := newFault()
	f.down()
	w.series(0, 5, 1)
	in := w.start(f)
	f.awaitDelivery(t)
	in.cancel()
	f.up()
	must.OK(t, in.end())
	if n := w.count("published"); n != 5 || len(w.topic.all()) != 5 {
		t.Errorf("%d rows marked and %d records after the stop, want 5", n, len(w.topic.all()))
	}
}

// TestStopGivesUp stops an instance with a silent broker.
func TestStopGivesUp(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.parts.DrainTimeout = 50 * time.Millisecond
	f := newFault()
	f.down()
	w.insert(w.conn, "k0", 0)
	in := w.start(f)
	f.awaitDelivery(t)
	must.OK(t, in.stop())
	if n := w.count("published"); n != 0 {
		t.Errorf("%d rows are marked, although nothing was delivered", n)
	}
}

// TestNotificationsWake has a poll every minute only.
func TestNotificationsWake(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex,
		`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('cdc_outbox', ''); RETURN NULL; END $$`,
		`CREATE TRIGGER note AFTER INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION note()`)
	w.parts.Interval, w.parts.MaxInterval = time.Minute, time.Minute
	in := w.start(nil)
	w.await("notifications", func() bool { return in.status().Notifications })
	for n := range 3 {
		w.insert(w.conn, "k0", n)
		w.published(n + 1)
	}
	// A broken connection is made anew.
	w.exec(w.conn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()")
	w.await("the end of notifications", func() bool { return !in.status().Notifications })
	w.await("notifications", func() bool { return in.status().Notifications })
	w.insert(w.conn, "k0", 3)
	w.published(4)
}

func TestIdlePollsAreCheap(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.parts.MaxInterval = w.parts.Interval
	w.exec(w.conn, `INSERT INTO outbox (aggregate_type, aggregate_id, payload) SELECT 'order', 'k', '0' FROM generate_series(1, 20000)`,
		"ANALYZE outbox", "UPDATE outbox SET published = true", "VACUUM outbox") // the statistics are from before
	w.start(nil)
	for n := range 5 {
		w.insert(w.conn, "k0", n)
		w.published(n + 1)
	}
	scans := func() (table, index int) {
		must.OK(t, w.conn.QueryRow(w.ctx(), "SELECT t.seq_scan, i.idx_scan FROM pg_stat_user_tables t JOIN pg_stat_user_indexes i USING (relid) WHERE indexrelname = 'outbox_unpublished_idx'").Scan(&table, &index))
		return table, index
	}
	_, began := scans()
	w.await("idle polls", func() bool { _, index := scans(); return index > began+100 })
	before, began := scans()
	w.insert(w.conn, "k0", 5)
	w.await("more polls", func() bool { _, index := scans(); return index > began+100 && len(w.topic.all()) == 6 })
	if after, _ := scans(); after > before {
		t.Errorf("%d sequential scans of a large table", after-before)
	}
}

// proxied has instances connect through a proxy.
func (w *world) proxied() (p *proxy.Proxy) {
	w.t.Helper()
	p, w.parts.URL = pgtest.Behind(w.t, w.parts.URL)
	return p
}

// The server is silent, as when its machine stands still, or the network loses everything.
func TestSilentServerShows(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.hasty = true
	p := w.proxied()
	in := w.start(nil)
	w.await("readiness", in.ready)
	fault := func(f proxy.Fault) { p.Set(proxy.Up, f); p.Set(proxy.Down, f) }
	fault(proxy.Fault{Swallow: true})
	w.await("readiness to say so", in.says("PostgreSQL has not answered for"))
	fault(proxy.Fault{})
	p.Cut()
	w.await("readiness again", in.ready)
}

// TestOutagesShow stops broker and PostgreSQL in the middle of a backlog, with all workers
// at work: readiness names the cause, and comes back by itself without another backlog.
func TestOutagesShow(t *testing.T) {
	server := pgtest.Start(t)
	w := newWorld(t, server, serialOutbox, serialIndex)
	w.hasty = true
	w.parts.Notify, w.parts.MaxInterval = "", w.parts.Interval
	w.parts.BatchSize, w.parts.ClaimTimeout = 10, 200*time.Millisecond
	backlog := func(n int) {
		w.exec(w.conn, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT 'order', n::text, 'Placed', '1' FROM generate_series(1, %d) n`, n))
	}
	sessions := func(query string) (n int) {
		must.OK(t, w.conn.QueryRow(w.ctx(), query).Scan(&n))
		return n
	}
	f := newFault()
	f.down()
	in := w.start(f)
	w.await("readiness", in.ready)
	backlog(100)
	w.await("the second worker", func() bool {
		return sessions("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cdc-outbox'") == 2
	})
	w.await("the broker as the cause", in.says("no delivery has been acknowledged for"))
	server.Stop(t, pgtest.Immediate)
	w.await("the server as the cause", in.says("connection refused"))
	if st := in.status(); st.Role != session.Starting || !strings.Contains(st.PostgresError, "connection refused") || in.reconnects.Load() == 0 {
		t.Errorf("status %+v, %d reconnects", st, in.reconnects.Load())
	}
	if in.unknown.Load() == 0 {
		t.Error("while PostgreSQL is away the backlog counts as known")
	}
	f.up()
	server.Resume(t)
	w.conn = w.connect()
	w.await("readiness", in.ready)
	w.published(100) // a batch with a claim lost with the server is published again

	// The second worker waits for the next backlog, and only then finds its
	// connection gone. The first has drained the backlog by then.
	w.await("the second worker to rest", func() bool {
		return sessions(`SELECT count(*) FROM (SELECT max(state_change) - min(state_change) AS apart, count(*) AS n
			FROM pg_stat_activity WHERE application_name = 'cdc-outbox') s WHERE n = 2 AND apart > interval '1 second'`) == 1
	})
	before := in.reconnects.Load()
	w.exec(w.conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cdc-outbox'`)
	w.await("the first worker to notice", func() bool { return in.reconnects.Load() > before })
	w.await("its new connection", in.ready)
	before = in.reconnects.Load()
	backlog(10)
	w.published(110)
	w.await("the second worker to notice", func() bool { return in.reconnects.Load() > before })
	if ok, reasons := in.health.Ready(); !ok {
		t.Errorf("not ready: %v", reasons)
	}
}
