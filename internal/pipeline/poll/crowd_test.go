package poll_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/proxy"
)

// TestHeldKeyDoesNotHoldBackOthers has more rows of held keys before the others
// than a batch holds.
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

// TestLargeRowsAreNotReadInVain has a batch of a thousand times what fits: what
// is read of it is not much more than that.
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

// TestBatchThatCannotBeReadInTimeIsReadInParts has rows of which a whole batch
// takes longer to read than the server allows.
func TestBatchThatCannotBeReadInTimeIsReadInParts(t *testing.T) {
	w := newWorld(t, nil,
		`CREATE TYPE slow AS (key text)`,
		`CREATE FUNCTION slowly(k slow) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN k.key; END $$`,
		`CREATE CAST (slow AS text) WITH FUNCTION slowly(slow)`,
		strings.Replace(serialOutbox, "aggregate_id text", "aggregate_id slow", 1), serialIndex,
		`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'order', row('k')::slow, 'Placed', '1' FROM generate_series(1, 24)`)
	w.parts.BatchSize, w.parts.Lanes = 24, 1
	u, err := url.Parse(w.parts.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery = "statement_timeout=800"
	w.parts.URL = u.String()
	w.start(nil)
	w.published(24)
}
