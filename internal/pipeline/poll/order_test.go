package poll_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

// TestLateCommitWithALowerID has a row become visible after the publication of a later row
// of its key. Both come in the order of the commits, and none is passed over.
func TestLateCommitWithALowerID(t *testing.T) {
	for name, ddl := range map[string]string{"serial": serialOutbox, "uuid": uuidOutbox} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, ddl)
			w.start(nil)
			late := w.connect()
			w.exec(late, "BEGIN")
			w.insert(late, "k0", 1)
			w.series(2, 22, 1)
			w.published(20)
			w.exec(late, "COMMIT")
			w.published(21)
			values := w.topic.values("k0")
			if last := values[len(values)-1]; last != "1" || len(values) != 21 {
				t.Errorf("published %v, want 1 last", values)
			}
		})
	}
}

// TestTransactionsThatTakeTurns lets a transaction begin first, wait for the aggregate's
// lock, and write second, with both in the same backlog.
func TestTransactionsThatTakeTurns(t *testing.T) {
	for name, ddl := range map[string]string{"serial": serialOutbox, "uuid": uuidOutbox} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, ddl, `CREATE TABLE aggregate (id text PRIMARY KEY, n int)`, `INSERT INTO aggregate VALUES ('k0', 0)`)
			first, second := w.connect(), w.connect()
			w.exec(second, "BEGIN", "SELECT now()")
			w.exec(first, "BEGIN", "UPDATE aggregate SET n = 1")
			w.insert(first, "k0", 1)
			waited := make(chan error, 1)
			go func() {
				_, err := second.Exec(w.ctx(), "UPDATE aggregate SET n = 2")
				waited <- err
			}()
			w.await("the second to wait", func() bool { return w.waiting() == 1 })
			w.exec(first, "COMMIT")
			must.OK(t, <-waited)
			w.insert(second, "k0", 2)
			w.exec(second, "COMMIT")
			w.start(nil)
			w.published(2)
			if got := w.topic.values("k0"); !slices.Equal(got, []string{"1", "2"}) {
				t.Errorf("published %v, want [1 2]", got)
			}
		})
	}
}

// waiting counts sessions waiting for a lock.
func (w *world) waiting() (n int) {
	w.t.Helper()
	must.OK(w.t, w.conn.QueryRow(w.ctx(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&n))
	return n
}

// snapshots counts other sessions of the database, perhaps with a view of deleted rows.
func (w *world) snapshots() (n int) {
	w.t.Helper()
	must.OK(w.t, w.conn.QueryRow(w.ctx(), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()`).Scan(&n))
	return n
}

// TestOrderWithinATransaction has rows of a single time, in a table with holes for them.
func TestOrderWithinATransaction(t *testing.T) {
	w := newWorld(t, nil, strings.Replace(uuidOutbox, "clock_timestamp()", "now()", 1))
	w.exec(w.conn,
		`INSERT INTO outbox (aggregate_type, aggregate_id, payload, published) SELECT 'order', 'old', to_jsonb(repeat('x', 900)), true FROM generate_series(1, 400) n`,
		`DELETE FROM outbox WHERE right(ctid::text, 2) IN ('1)', '3)', '5)')`, `BEGIN`)
	var want []string
	for n := range 200 {
		if n == 100 {
			// Autovacuum may have a snapshot with everything deleted.
			w.await("older snapshots to go", func() bool { return w.snapshots() == 0 })
			w.exec(w.connect(), `VACUUM outbox`)
		}
		w.exec(w.conn, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('order', 'k0', to_jsonb(%d || repeat(' ', 500)))`, n))
		want = append(want, fmt.Sprintf("\"%d%s\"", n, strings.Repeat(" ", 500)))
	}
	var inPlace bool
	err := w.conn.QueryRow(w.ctx(), `SELECT bool_and(n) FROM (SELECT ctid > lag(ctid) OVER (ORDER BY cmin::text::int) FROM outbox WHERE NOT published) AS o(n)`).Scan(&inPlace)
	if err != nil || inPlace {
		t.Fatalf("the rows lie in their order (%v): nothing is tested", err)
	}
	w.exec(w.conn, "COMMIT")
	w.start(nil)
	w.published(200)
	if got := w.topic.values("k0"); !slices.Equal(got, want) {
		t.Errorf("rows of a transaction are out of order: %d of %d", len(got), len(want))
	}
}

// TestRowHeldElsewhereHoldsBackItsKey has another session lock a row.
func TestRowHeldElsewhereHoldsBackItsKey(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.series(0, 10, 2)
	holder := w.connect()
	w.exec(holder, "BEGIN", "SELECT FROM outbox WHERE payload = '2' FOR UPDATE")
	w.start(nil)
	w.await("the other key", func() bool { return len(w.topic.values("k1")) == 5 })
	w.series(10, 20, 2) // more polls
	w.await("the other key", func() bool { return len(w.topic.values("k1")) == 10 })
	if got := w.topic.values("k0"); !slices.Equal(got, []string{"0"}) {
		t.Errorf("published %v of the key with the row that is held, want [0]", got)
	}
	w.exec(holder, "COMMIT")
	w.published(20)
	w.wantInOrder(2, 20)
}

// TestOnlyRowDeletedElsewhere leaves nothing behind to look at.
func TestOnlyRowDeletedElsewhere(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.insert(w.conn, "k0", 0)
	holder := w.connect()
	w.exec(holder, "BEGIN", "DELETE FROM outbox")
	in := w.start(nil)
	w.await("the row that is held back", func() bool { return in.status().HeldElsewhere == 1 })
	w.exec(holder, "COMMIT")
	w.await("none to be held back", func() bool { return in.status().HeldElsewhere == 0 })
}

// TestRowDeletedElsewhere has a waiting row go away.
func TestRowDeletedElsewhere(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.series(0, 3, 1)
	holder := w.connect()
	w.exec(holder, "BEGIN", "DELETE FROM outbox WHERE payload = '1'")
	in := w.start(nil)
	w.await("the row before", func() bool { return len(w.topic.values("k0")) == 1 })
	w.await("the rows that are held back", func() bool { return in.status().HeldElsewhere == 2 })
	w.exec(holder, "COMMIT")
	w.published(2)
	w.await("none to be held back", func() bool { return in.status().HeldElsewhere == 0 })
	if got := w.topic.values("k0"); !slices.Equal(got, []string{"0", "2"}) {
		t.Errorf("published %v, want [0 2]", got)
	}
}

// TestHeldKeyDoesNotHoldBackOthers has more rows of held keys before the others than fit in
// a batch.
func TestHeldKeyDoesNotHoldBackOthers(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.parts.BatchSize = 4
	held := []string{`it's`, `a \ b`, `{x,"y"}`}
	for n := range 10 {
		for _, key := range held {
			w.insert(w.conn, key, n)
		}
	}
	for n := range 10 {
		w.insert(w.conn, fmt.Sprintf("free%d", n), n)
	}
	other := w.connect()
	w.exec(other, "BEGIN", "SELECT FROM outbox WHERE payload = '0' AND aggregate_id NOT LIKE 'free%' FOR UPDATE")
	w.start(nil)
	w.await("the other keys", func() bool { return w.count("published") == 10 })
	if n := w.count("published AND aggregate_id NOT LIKE 'free%'"); n > 0 {
		t.Errorf("%d rows of held keys were published", n)
	}
	w.exec(other, "ROLLBACK")
	w.published(40)
	for _, key := range held {
		if got := fmt.Sprint(w.topic.values(key)); got != "[0 1 2 3 4 5 6 7 8 9]" {
			t.Errorf("key %q: published %s", key, got)
		}
	}
}

// TestLargeRowsAreNotReadInVain has a batch of a thousand times the bound: not much more
// than the bound is read.
func TestLargeRowsAreNotReadInVain(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.exec(w.conn, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', 'k' || n % 3, 'Placed', to_jsonb(repeat('x', 1 << 20)) FROM generate_series(1, 64) n`)
	w.parts.MaxBufferedBytes = 256 << 10
	p := w.proxied()
	f := newFault()
	f.down()
	w.start(f)
	f.awaitDelivery(t)
	if read := p.Bytes(proxy.Down) >> 20; read > 32 {
		t.Errorf("%d MiB were read for a first batch of 1", read)
	}
	f.up()
	w.published(64)
	if got := len(w.topic.all()); got != 64 {
		t.Errorf("%d records for 64 rows", got)
	}
}

// TestBatchThatCannotBeReadInTimeIsReadInParts has a whole batch take longer to read than
// the server allows.
func TestBatchThatCannotBeReadInTimeIsReadInParts(t *testing.T) {
	w := newWorld(t, nil,
		`CREATE TYPE slow AS (key text)`,
		`CREATE FUNCTION slowly(k slow) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN k.key; END $$`,
		`CREATE CAST (slow AS text) WITH FUNCTION slowly(slow)`,
		strings.Replace(serialOutbox, "aggregate_id text", "aggregate_id slow", 1), serialIndex,
		`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'order', row('k')::slow, 'Placed', '1' FROM generate_series(1, 24)`)
	w.parts.BatchSize, w.parts.Lanes = 24, 1
	u := must.Get(url.Parse(w.parts.URL))(t)
	u.RawQuery = "statement_timeout=800"
	w.parts.URL = u.String()
	w.start(nil)
	w.published(24)
}
