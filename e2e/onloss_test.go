package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// With errors.on_loss: repair, every event arrives, in order per key, after each way to
// lose the slot: it is dropped, beside a running connector and a stopped one, and a
// repair is killed time and again; a standby is promoted without it; the server
// invalidates it; a backup is restored, with an old slot and without the last events.
func TestE2EOnLossRepair(t *testing.T) {
	for name, o := range map[string]options{"at_least_once": {}, "exactly_once": {exactlyOnce: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := pairWithoutSlot(t)
			o.server = servers.Primary
			o.config = "errors:\n  on_loss: repair\n"
			w := newWorld(t, o)
			d := &lossDrill{world: w, server: servers.Primary}
			d.c = w.start()
			d.begin()
			d.await(300)

			d.loses("the slot is dropped beside the connector", func() {
				d.exec("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '"+w.slot+"' AND active",
					"SELECT pg_sleep(0.05)", "SELECT pg_drop_replication_slot('"+w.slot+"')")
			})
			d.losesDown("the slot is dropped, and repairs are killed", func() {
				d.exec("SELECT pg_drop_replication_slot('" + w.slot + "')")
				d.bulk(6000)
				d.killedAt(`"log was lost`)
				d.killedAt(`"created slot"`)
				d.killedAt(`"to":"repairing"`)
				d.killedWhilePublishing()
			})
			d.losesDown("a standby is promoted without the slot", func() { servers.FailOver(t) })
			d.losesDown("the slot is invalidated", d.invalidate)
			backup := d.backUp()
			d.losesDown("a backup is restored", func() { d.restore(backup) })
			d.await(200)
			d.pause()
			w.arrived()
			d.c.stop()
			d.judge(o.exactlyOnce)
		})
	}
}

// lossDrill is a world that loses its slot time and again, under load.
type lossDrill struct {
	*world
	server *pgtest.Server
	c      *connector
	kills  int

	next    int
	written func() int
	stop    func()
}

// begin inserts events, one a transaction, until pause. The keys are five.
func (d *lossDrill) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var ended sync.WaitGroup
	count := 0
	ended.Go(func() {
		var conn *pgx.Conn
		for ctx.Err() == nil {
			if conn == nil || conn.IsClosed() {
				conn, _ = pgx.Connect(ctx, d.url)
			}
			if conn == nil {
				continue
			}
			mu.Lock()
			d.next++
			n := d.next
			mu.Unlock()
			if d.insert(conn, n, 1) {
				mu.Lock()
				count++
				mu.Unlock()
			}
		}
		if conn != nil {
			closeConn(conn)
		}
	})
	d.written = func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
	var once sync.Once
	d.stop = func() { once.Do(func() { cancel(); ended.Wait() }) }
	d.t.Cleanup(d.stop)
}

func (d *lossDrill) pause() { d.stop() }

// await returns once so many events more are committed.
func (d *lossDrill) await(more int) {
	d.t.Helper()
	want := d.written() + more
	await.Until(d.t, "events are inserted", func() bool { return d.written() >= want })
}

// insert commits events with the numbers from n on, and notes them.
func (d *lossDrill) insert(conn *pgx.Conn, n, events int) (committed bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tx := checker.Transaction{Outcome: checker.Unknown, Began: d.ledger.Now()}
	for i := n; i < n+events; i++ {
		tx.Events = append(tx.Events, checker.Event{ID: eventID(i), Topic: topicOf("order"), Key: fmt.Sprintf("key %d", i%5), Value: fmt.Sprint(i),
			Headers: []checker.Header{{Key: "id", Value: eventID(i)}, {Key: "eventType", Value: "Placed"}}})
	}
	_, err := conn.Exec(ctx, fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 'order', 'key ' || n %% 5, 'Placed', n::text FROM generate_series(%d, %d) n`, n, n+events-1))
	if err == nil {
		tx.Outcome = checker.Committed
	} else {
		closeConn(conn)
	}
	d.ledger.Add(tx)
	return err == nil
}

// bulk commits events in one transaction, while nothing else is.
func (d *lossDrill) bulk(events int) {
	d.t.Helper()
	d.pause()
	conn := connect(d.t, d.url)
	if !d.insert(conn, d.next+1, events) {
		d.t.Fatal("the events are not inserted")
	}
	d.next += events
	d.begin()
}

// exec executes statements by a connection of its own.
func (d *lossDrill) exec(sql ...string) {
	d.t.Helper()
	pgtest.Exec(d.t, d.url, sql...)
}

func (d *lossDrill) count(query string) (n int) {
	d.t.Helper()
	conn := connect(d.t, d.url)
	must.OK(d.t, conn.QueryRow(pgtest.Context(d.t), query).Scan(&n))
	return n
}

// pairWithoutSlot is a primary and a standby with all commits and without the slot.
func pairWithoutSlot(t *testing.T) *pgtest.Pair {
	t.Helper()
	servers := pgtest.StartPair(t)
	servers.Standby.Exec(t, "ALTER SYSTEM SET sync_replication_slots = off", "SELECT pg_reload_conf()")
	servers.Primary.Exec(t, "ALTER SYSTEM SET synchronized_standby_slots = ''",
		"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()") // or a failover loses commits
	return servers
}

// confirmed returns once everything committed by now is confirmed.
func (d *lossDrill) confirmed() {
	d.t.Helper()
	conn := connect(d.t, d.url)
	var end string
	must.OK(d.t, conn.QueryRow(pgtest.Context(d.t), "SELECT pg_current_wal_lsn()::text").Scan(&end))
	pgtest.Await(d.t, conn, "SELECT confirmed_flush_lsn >= $1::text::pg_lsn FROM pg_replication_slots WHERE slot_name = $2", end, d.slot)
}

// loses loses the slot beside the running connector, which repairs.
func (d *lossDrill) loses(how string, lose func()) {
	d.t.Helper()
	lose()
	d.await(100)
	d.repaired(how)
}

// losesDown kills the connector, loses the slot, and starts the connector.
func (d *lossDrill) losesDown(how string, lose func()) {
	d.t.Helper()
	d.c.kill()
	d.kills++
	await.Until(d.t, "end of the slot's reader", func() bool {
		return d.count("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '"+d.slot+"' AND active") == 0
	})
	lose()
	d.c = startConnector(d.t, d.config)
	d.repaired(how)
}

func (d *lossDrill) repaired(how string) {
	d.t.Helper()
	d.t.Log(how)
	d.c.awaitLog(`"repaired: `)
	d.c.awaitLog(d.started())
	line := strings.TrimSpace(d.c.lineOf(`"repaired: `))
	d.t.Logf("%s: %s", how, line)
}

// killedAt kills a connector once it has logged the text.
func (d *lossDrill) killedAt(text string) {
	d.t.Helper()
	c := startConnector(d.t, d.config)
	c.awaitLog(text)
	c.kill()
	d.kills++
}

// killedWhilePublishing kills a connector once some of the missing events are published.
func (d *lossDrill) killedWhilePublishing() {
	d.t.Helper()
	before := len(d.reader.Records())
	c := startConnector(d.t, d.config)
	await.Until(d.t, "a repaired event", func() bool { c.running(); return len(d.reader.Records()) > before })
	c.kill()
	d.kills++
}

// judge wants every event, in order per key, and no more repetitions than promised.
func (d *lossDrill) judge(exactly bool) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must.OK(d.t, d.reader.AwaitEnds(ctx, d.ends()))
	d.settle()
	records, mended := d.reader.Records(), 0
	for i := range records {
		r := &records[i]
		if r.Header("cdc-repair") != "" {
			mended++
		}
		r.Headers = r.Headers[:2] // those that repair publishes have no position
	}
	report := checker.Verify(checker.History{Transactions: d.ledger.Transactions(), Records: records, NoPositions: true})
	d.t.Logf("%s; %d records were published by repairs, %d kills", report, mended, d.kills)
	if err := report.Err(); err != nil {
		d.t.Error(err)
	}
	if most := d.kills * 1000; exactly && report.Repeated > 0 || report.Repeated > most {
		d.t.Errorf("%d events were repeated", report.Repeated)
	}
}

// lineOf is the last line of the log with the text.
func (c *connector) lineOf(text string) (line string) {
	for l := range strings.Lines(c.lastLines(1000)) {
		if strings.Contains(l, text) {
			line = l
		}
	}
	return line
}
