package stream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// waitFor has commits wait for a synchronous standby of the names; none do for "".
func (d *database) waitFor(names string) {
	d.t.Helper()
	pgtest.Exec(d.t, d.url, "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'", "SELECT pg_reload_conf()")
	eventually(d.t, "the setting", func() bool { return d.text("SHOW synchronous_standby_names") == names })
}

// commitWaiting commits an event in the background, on a connection of its own. The
// returned function waits for the end, which may be a server's.
func (d *database) commitWaiting() (join func()) {
	d.t.Helper()
	d.next++
	id := strconv.Itoa(d.next)
	d.ids = append(d.ids, id)
	conn := must.Get(pgx.Connect(d.t.Context(), d.url))(d.t)
	var done sync.WaitGroup
	done.Go(func() {
		_, _ = conn.Exec(context.WithoutCancel(d.t.Context()), "INSERT INTO outbox VALUES ('"+id+"', 'order', 'o-1', 'Placed', '{}')")
		_ = conn.Close(context.Background())
	})
	return done.Wait
}

// local commits of the connection for looks wait for no standby.
func (d *database) local() { d.t.Helper(); d.exec("SET synchronous_commit = local") }

// reader looks, at each event that is published, whether the row can be read.
type reader struct {
	mu   sync.Mutex
	conn *pgx.Conn
	url  string
	miss []string
}

// readEvents makes the gate's consumer a reader of the rows.
func (d *database) readEvents() *reader {
	r := &reader{url: d.url}
	d.t.Cleanup(r.close)
	d.gate.refuses = func(ev *transform.Event) *transform.BadEvent { r.look(ev); return nil }
	return r
}

func (r *reader) look(ev *transform.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if there, err := r.finds(string(ev.ID)); err != nil || !there {
		r.miss = append(r.miss, fmt.Sprint(string(ev.ID), " ", err))
	}
}

// finds looks on a connection that outlives no server.
func (r *reader) finds(id string) (there bool, err error) {
	if r.conn == nil || r.conn.Ping(context.Background()) != nil {
		if r.conn, err = pgx.Connect(context.Background(), r.url); err != nil {
			return false, err
		}
	}
	err = r.conn.QueryRow(context.Background(), "SELECT EXISTS (SELECT FROM outbox WHERE id = $1)", id).Scan(&there)
	return there, err
}

func (r *reader) close() {
	if r.conn != nil {
		_ = r.conn.Close(context.Background())
	}
}

func (r *reader) missed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.miss)
}

// holds returns once the instance holds an event back.
func (i *instance) holds() {
	i.t.Helper()
	eventually(i.t, "an event that is held back", func() bool { return i.status().Invisible != nil })
}

// visibleDatabase is an outbox of a server of its own, with source.visibility: wait.
func visibleDatabase(t *testing.T, opts ...pgtest.Option) (*pgtest.Server, *database) {
	t.Helper()
	t.Parallel()
	server := pgtest.Start(t, opts...)
	d := newDatabase(t, server.NewDatabase(t))
	d.opts.Visible = true
	d.local()
	return server, d
}

// Without the option, a consumer of the event does not find the row.
func TestEventsCanArriveBeforeTheirRows(t *testing.T) {
	_, d := visibleDatabase(t)
	d.opts.Visible = false
	r := d.readEvents()
	i := d.run().streams()
	d.waitFor("absent")
	join := d.commitWaiting()
	d.arrive()
	if r.missed() != 1 {
		t.Error("the row could be read: this proves nothing")
	}
	d.waitFor("")
	join()
	d.finish(i)
}

// Failure mode 185: a commit waits for a standby that is away. The event waits, all of
// it shows, and nothing else takes the wait for a standstill.
func TestE2EEventWaitsUntilItsRowCanBeRead(t *testing.T) {
	_, d := visibleDatabase(t)
	r := d.readEvents()
	i := d.run().streams()
	d.publish(3, 1)
	d.waitFor("absent")
	join := d.commitWaiting()
	i.holds()
	d.insert(3, 1) // visible at once, and behind
	i.inFlight(4)
	if why := i.unready("source.visibility: the event"); !matches(`has waited for 1\ds .* standby of synchronous_standby_names \(absent\)`, why) {
		t.Error(why)
	}
	for _, text := range []string{"nothing has arrived", "has stayed at", "no acknowledgement"} {
		if _, reasons := i.health.Ready(); strings.Contains(strings.Join(reasons, " "), text) {
			t.Errorf("misleading: %v", reasons)
		}
	}
	if remedies := i.health.Remedies(); !slices.Contains(remedies, remedySynchronous) {
		t.Errorf("remedies %q", remedies)
	}
	st := i.status()
	if st.UnackedSeconds > 0 || st.SlotLagSeconds < invisibleAfter.Seconds() || i.metrics.reconnected() > 0 || st.Standstill != nil {
		t.Errorf("unacked %v, lag %v, %d reconnects, standstill %v", st.UnackedSeconds, st.SlotLagSeconds, i.metrics.reconnected(), st.Standstill)
	}
	eventually(t, "the log to tell", func() bool {
		return i.logs.FilterMessage("an event waits until its row can be read on the primary").Len() > 0
	})
	if got := len(d.topic.ids()); got != 3 || d.confirmed() > d.topic.all()[2].position.CommitLSN+1<<20 {
		t.Errorf("%d records", got)
	}
	d.waitFor("")
	join()
	d.arrive()
	eventually(t, "readiness", i.ready)
	if r.missed() > 0 {
		t.Errorf("rows that could not be read: %v", r.miss)
	}
	if i.status().Invisible != nil {
		t.Error("still held back")
	}
	d.finish(i)
}

// A stop gives up a held event after errors.drain_timeout, and the next start has it.
func TestE2EStopWhileAnEventIsHeldBack(t *testing.T) {
	_, d := visibleDatabase(t)
	d.opts.DrainTimeout = 100 * time.Millisecond
	i := d.run().streams()
	d.waitFor("absent")
	join := d.commitWaiting()
	i.holds()
	i.stop()
	if n := len(d.topic.ids()); n > 0 {
		t.Errorf("%d records", n)
	}
	i = d.run().streams()
	i.holds()
	d.waitFor("")
	join()
	d.arrive()
	d.finish(i)
}

// The server crashes while a commit waits: the transaction stands, and the event comes.
func TestE2ECrashWhileAnEventIsHeldBack(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("connector restarted %t", restarted), func(t *testing.T) {
			server, d := visibleDatabase(t)
			d.opts.DrainTimeout = 100 * time.Millisecond
			r := d.readEvents()
			i := d.run().streams()
			d.waitFor("absent")
			join := d.commitWaiting()
			i.holds()
			i = d.crash(server, i, restarted)
			join()
			d.local()
			d.insert(1, 1)
			d.arrive()
			i.stop()
			d.wantAll()
			if r.missed() > 0 {
				t.Errorf("rows that could not be read: %v", r.miss)
			}
			d.waitFor("") // or the database would not be dropped
		})
	}
}

// The connection that asks is lost again and again: the events come, none unseen.
func TestE2EVisibilityAsksOnANewConnection(t *testing.T) {
	_, d := visibleDatabase(t)
	r := d.readEvents()
	i := d.run().streams()
	const mine = "query LIKE 'SELECT pg_current_snapshot()%' AND pid <> pg_backend_pid()"
	for range 5 {
		d.waitFor("absent")
		join := d.commitWaiting()
		i.holds()
		d.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE " + mine)
		eventually(t, "another connection", func() bool { return d.text("SELECT count(*)::text FROM pg_stat_activity WHERE "+mine) == "1" })
		d.waitFor("")
		join()
		d.arrive()
	}
	if r.missed() > 0 {
		t.Errorf("rows that could not be read: %v", r.miss)
	}
	d.finish(i)
}

// looked is a transactor with a reader of the rows.
type looked struct {
	transactor
	*reader
	prepared atomic.Int32
}

func (l *looked) Prepare(context.Context) error { l.prepared.Add(1); return nil }
func (*looked) Close()                          {}

func (l *looked) Transact(ctx context.Context, entries []sink.Entry, m *kgo.Record) ([]sink.Refusal, error) {
	for _, e := range entries {
		l.look(e.Event)
	}
	return l.transactor.Transact(ctx, entries, m)
}

// With exactly once, no Kafka transaction is open while an event is held back: it would
// hold back consumers of what is committed.
func TestE2EVisibilityBeforeKafkaTransactions(t *testing.T) {
	_, d := visibleDatabase(t)
	x := &looked{reader: d.readEvents()}
	i := d.startWith(Parts{Store: d.store, Transactions: &Transactions{Sink: x, Marker: x}}).streams()
	published := func(n int) {
		eventually(t, "the events", func() (all bool) {
			i.metrics.locked(func() { all = i.metrics.published == n })
			return all
		})
	}
	d.insert(3, 1)
	published(3)
	d.waitFor("absent")
	before := x.prepared.Load()
	join := d.commitWaiting()
	i.holds()
	d.insert(1, 1)
	i.inFlight(2)
	if now := x.prepared.Load(); now != before {
		t.Errorf("%d Kafka transactions were begun for it", now-before)
	}
	d.waitFor("")
	join()
	published(5)
	i.stop()
	if x.missed() > 0 {
		t.Errorf("rows that could not be read: %v", x.miss)
	}
}

// Commits that wait for the connector would wait for ever.
func TestVisibilityRefusesToBeTheSynchronousStandby(t *testing.T) {
	_, d := visibleDatabase(t, pgtest.Setting("synchronous_standby_names", "*"), pgtest.Setting("synchronous_commit", "local"))
	d.start(&fakeStore{}, d.gate).wantEnd(failure.Config, "would wait for ever")
}

// Subtransactions, a prepared transaction, messages with and without a transaction, and a
// transaction that the server streams from its disk.
func TestE2EVisibilityOfEveryKindOfTransaction(t *testing.T) {
	_, d := visibleDatabase(t, pgtest.Setting("max_prepared_transactions", "1"), pgtest.Setting("logical_decoding_work_mem", "64kB"))
	d.opts.Messages = true
	r := d.readEvents()
	i := d.run().streams()
	insert := func() string {
		d.next++
		d.ids = append(d.ids, strconv.Itoa(d.next))
		return fmt.Sprintf("INSERT INTO outbox VALUES ('%d', 'order', 'o-1', 'Placed', '{}');", d.next)
	}
	d.exec("BEGIN;" + insert() + "SAVEPOINT a;" + insert() + "SAVEPOINT b;" + insert() + "RELEASE a; COMMIT")
	d.exec("BEGIN;" + insert() + "PREPARE TRANSACTION 'p'")
	d.exec("COMMIT PREPARED 'p'")
	d.arrive()
	d.insert(2000, 2000)
	d.arrive()
	if r.missed() > 0 {
		t.Errorf("rows that could not be read: %v", r.miss[:min(5, r.missed())])
	}
	d.finish(i)
	d.wantOnce()
}

// The snapshot of a new slot sees a commit that waits for a standby: the commit came
// while the creation waited for an older transaction.
func TestE2ESnapshotWaitsForInvisibleRows(t *testing.T) {
	_, d := visibleDatabase(t)
	d.opts.Snapshot = true
	d.waitsInvisibly(d.run)
}

// A repair reads the same snapshot.
func TestE2ERepairWaitsForInvisibleRows(t *testing.T) {
	_, d := visibleDatabase(t)
	r := &fakeRepairer{d: d}
	i := d.repairing(r).streams()
	d.publish(2, 1)
	i.stop()
	d.dropSlot()
	d.waitsInvisibly(func() *instance { return d.repairing(r) })
}

// waitsInvisibly has an instance create a slot with a commit in its first snapshot that
// waits for a standby, and wants no event before its row.
func (d *database) waitsInvisibly(run func() *instance) {
	t := d.t
	t.Helper()
	before := len(d.topic.ids())
	open := func() func() {
		conn := must.Get(pgx.Connect(t.Context(), d.url))(t)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		must.Get(conn.Exec(t.Context(), "BEGIN; SET LOCAL synchronous_commit = local; SELECT pg_current_xact_id()"))(t)
		return func() { must.Get(conn.Exec(t.Context(), "COMMIT"))(t) }
	}
	waitsFor := func() string {
		return d.text(`SELECT COALESCE(max(l.transactionid::text), '') FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE NOT l.granted AND l.locktype = 'transactionid' AND a.backend_type = 'walsender'`)
	}
	endFirst := open()
	r := d.readEvents()
	i := run()
	eventually(t, "the creation to wait for the first", func() bool { return waitsFor() != "" })
	first := waitsFor()
	endSecond := open()
	endFirst()
	eventually(t, "the creation to wait for the second", func() bool { now := waitsFor(); return now != "" && now != first })
	d.waitFor("absent")
	join := d.commitWaiting()
	eventually(t, "the commit to wait", func() bool {
		return d.text("SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "1"
	})
	endSecond()
	i.unready("rows of the outbox wait until they can be read")
	if n := len(d.topic.ids()); n > before {
		t.Errorf("published %d rows", n-before)
	}
	d.waitFor("")
	join()
	d.arrive()
	if r.missed() > 0 {
		t.Errorf("rows that could not be read: %v", r.miss)
	}
	d.finish(i)
}

// A real synchronous standby that applies with a delay, and writers side by side: with
// the option no reader misses a row, without it most do. The log has what that costs.
func TestE2EVisibilityWithASynchronousStandby(t *testing.T) {
	t.Parallel()
	servers := pgtest.StartReplica(t)
	d := newDatabase(t, servers.Primary.NewDatabase(t))
	d.local()
	servers.Standby.Exec(t, "ALTER SYSTEM SET recovery_min_apply_delay = '20ms'", "SELECT pg_reload_conf()")
	eventually(t, "the standby", func() bool {
		return d.text("SELECT count(*)::text FROM pg_stat_replication WHERE application_name = 'walreceiver' AND state = 'streaming'") == "1"
	})
	d.waitFor("walreceiver")
	d.exec("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = ''remote_apply''', current_database()); END $$")
	for _, visible := range []bool{false, true} {
		d.opts.Visible = visible
		r := d.readEvents()
		i := d.run().streams()
		before := len(d.topic.ids())
		took := d.write(8, 25)
		arrive(t, d.topic, before+200)
		i.stop()
		t.Logf("visible %t: of 200 events, %d came before their row; commits took %v", visible, r.missed(), took)
		switch missed := r.missed(); {
		case visible && missed > 0:
			t.Errorf("rows that could not be read: %v", r.miss)
		case !visible && missed == 0:
			t.Error("every row could be read: this proves nothing")
		}
	}
	for _, id := range d.ids {
		if n := count(d.topic.ids(), id); n != 1 {
			t.Errorf("event %s came %d times", id, n)
		}
	}
}

func count(ids []string, id string) (n int) {
	for _, other := range ids {
		if other == id {
			n++
		}
	}
	return n
}

// write has writers commit n events each, and returns the median time of a commit.
func (d *database) write(writers, n int) time.Duration {
	d.t.Helper()
	var mu sync.Mutex
	var all []time.Duration
	var writing sync.WaitGroup
	for range writers {
		conn := must.Get(pgx.Connect(d.t.Context(), d.url))(d.t)
		first := d.next + 1
		d.next += n
		for id := first; id <= d.next; id++ {
			d.ids = append(d.ids, strconv.Itoa(id))
		}
		writing.Go(func() {
			defer conn.Close(context.Background())
			for id := first; id < first+n; id++ {
				began := time.Now()
				_, err := conn.Exec(d.t.Context(), fmt.Sprintf("INSERT INTO outbox VALUES ('%d', 'order', 'o-%d', 'Placed', '{}')", id, rand.N(7)))
				if err != nil {
					d.t.Errorf("insert: %v", err)
					return
				}
				mu.Lock()
				all = append(all, time.Since(began))
				mu.Unlock()
			}
		})
	}
	writing.Wait()
	slices.Sort(all)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)/2]
}

// The cost of the option where no commit waits: without and with it by turns, live with
// one writer after the other, live with a stream of commits, and in a backlog. The log
// has the ratios, which are of this machine.
func TestVisibilityCost(t *testing.T) {
	_, d := visibleDatabase(t)
	const turns, single, many = 3, 100, 5000
	var costs [2]visibilityCost
	for turn := range 2 * turns {
		visible := turn % 2
		d.opts.Visible = visible == 1
		costs[visible].measure(d, single, many)
	}
	for _, c := range []struct {
		what string
		of   func(*visibilityCost) time.Duration
	}{
		{"p50 of latency", func(c *visibilityCost) time.Duration { return c.quantile(0.5) }},
		{"p99 of latency", func(c *visibilityCost) time.Duration { return c.quantile(0.99) }},
		{"time for a stream of commits", func(c *visibilityCost) time.Duration { return c.live }},
		{"time for a backlog", func(c *visibilityCost) time.Duration { return c.backlog }},
	} {
		none, wait := c.of(&costs[0]), c.of(&costs[1])
		t.Logf("%s: %v without, %v with, ratio %.2f", c.what, none.Round(time.Microsecond), wait.Round(time.Microsecond), float64(wait)/float64(none))
	}
	d.wantOnce()
}

type visibilityCost struct {
	latencies     []time.Duration // from before a commit to the sink
	live, backlog time.Duration
}

func (c *visibilityCost) quantile(q float64) time.Duration {
	slices.Sort(c.latencies)
	return c.latencies[int(q*float64(len(c.latencies)-1))]
}

func (c *visibilityCost) measure(d *database, single, many int) {
	d.t.Helper()
	arrived := make(chan struct{}, 1)
	d.gate.refuses = func(*transform.Event) *transform.BadEvent {
		select {
		case arrived <- struct{}{}:
		default:
		}
		return nil
	}
	i := d.run().streams()
	for range single {
		began := time.Now()
		d.insert(1, 1)
		<-arrived
		c.latencies = append(c.latencies, time.Since(began))
	}
	began := time.Now()
	d.commits(many)
	d.arrive()
	c.live += time.Since(began)
	i.stop()
	d.commits(many)
	began = time.Now()
	i = d.run()
	d.arrive()
	c.backlog += time.Since(began)
	i.stop()
}

// commits commits so many events, each alone, as fast as a session can.
func (d *database) commits(n int) {
	d.t.Helper()
	first := d.next + 1
	d.next += n
	for id := first; id <= d.next; id++ {
		d.ids = append(d.ids, strconv.Itoa(id))
	}
	d.exec("SET synchronous_commit = off")
	d.exec(fmt.Sprintf(`DO $$ BEGIN
		FOR n IN %d .. %d LOOP
			INSERT INTO outbox VALUES (n::text, 'order', 'o-1', 'Placed', '{}');
			COMMIT;
		END LOOP;
	END $$`, first, d.next))
	d.local()
}

// Another log gives the id of a held event's transaction to another transaction. While
// the log has not proven to be the log read before, the event stays.
func TestE2EVisibilityOfAnotherLog(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	f.d.opts.Visible = true
	f.d.opts.DrainTimeout = time.Millisecond
	f.d.local()
	p, behind := behindProxy(t, f.d)
	i := behind.run().streams()
	f.d.waitFor("absent")
	join := f.d.commitWaiting()
	i.holds()
	held := i.status().Invisible
	p.Refuse(true)
	p.Cut()
	f.putBack()
	join()
	release := f.d.occupySlot()
	eventually(t, "the log to grow past what was read, and the id to come again", func() bool {
		f.d.exec("INSERT INTO outbox SELECT 'other ' || gen_random_uuid(), 'order', 'o-1', 'Placed', '{}'")
		return f.d.text("SELECT (pg_current_wal_flush_lsn() > '"+held.LSN+"' AND age('"+strconv.FormatUint(uint64(held.XID), 10)+"'::xid) > 1)::text") == "true"
	})
	p.Refuse(false)
	eventually(t, "a look at the slot, which another reader has", func() bool { return i.status().Role == session.Standby })
	eventually(t, "a question about the event", func() bool {
		h := i.status().Invisible
		return len(f.d.topic.ids()) > 0 || h != nil && strings.Contains(h.Reason, "no stream of the log read before")
	})
	release()
	i.wantEnd(failure.Loss, `not the one that was read`)
	if got := f.d.topic.ids(); len(got) > 0 {
		t.Errorf("published %q, whose row is gone", got)
	}
}

// occupySlot has another process read the slot until release.
func (d *database) occupySlot() (release func()) {
	d.t.Helper()
	conn := must.Get(pgconn.Connect(d.t.Context(), d.url+"?replication=database"))(d.t)
	d.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	conn.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION SLOT " + d.opts.Slot + " LOGICAL 0/0 (proto_version '1', publication_names 'cdc_outbox')"})
	must.OK(d.t, conn.Frontend().Flush())
	eventually(d.t, "the other reader", func() bool {
		return d.text("SELECT active::text FROM pg_replication_slots WHERE slot_name = '"+d.opts.Slot+"'") == "true"
	})
	return func() { _ = conn.Close(context.Background()) }
}
