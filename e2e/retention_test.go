package e2e

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// retentionConfig has rows go as soon as can be.
const retentionConfig = `retention:
  after: 300ms
  interval: 100ms
  partitions_ahead: 0
`

// outage is longer than a partition of the tables below lasts.
const outage = 5 * time.Second

// The tables kept small by retention.
const (
	plainTable = `ALTER TABLE outbox ADD created_at timestamptz NOT NULL DEFAULT clock_timestamp()`

	// partitionedTable has partitions of three seconds for ten minutes, more than a
	// slow machine takes.
	partitionedTable = `DROP TABLE outbox;
		CREATE TABLE outbox (id uuid, aggregatetype text, aggregateid text, type text, payload text, note text,
			created_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at);
		DO $$ BEGIN
			FOR n IN 0..199 LOOP
				EXECUTE format('CREATE TABLE outbox_%s PARTITION OF outbox FOR VALUES FROM (%L) TO (%L)',
					n, now() + n * interval '3 s', now() + (n + 1) * interval '3 s');
			END LOOP;
		END $$`

	// gappedTable lacks every other partition, and has a default partition
	// instead.
	gappedTable = partitionedTable + `;
		DO $$ BEGIN
			FOR n IN 0..199 BY 2 LOOP EXECUTE 'DROP TABLE outbox_' || n; END LOOP;
		END $$;
		CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT`
)

// TestE2ERetention kills the connector, the connections and the broker while
// retention removes rows behind them: nothing is lost, no unpublished row goes,
// and all go in the end.
func TestE2ERetention(t *testing.T) {
	t.Parallel()
	for name, table := range map[string]string{
		"rows":                     plainTable,
		"partitions":               partitionedTable,
		"partitions and a default": gappedTable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			retained(t, table)
		})
	}
}

func retained(t *testing.T, table string) {
	kills := 3
	if testing.Short() {
		kills = 1
	}
	w := newWorld(t, options{config: retentionConfig})
	w.exec(table)
	gone := w.watchRows()
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 100))
	c := w.start()
	load := w.write(s, 10*time.Millisecond, 0)
	for range kills {
		gone.awaitMore()
		load.await(random.IntN(300))
		switch random.IntN(3) {
		case 0:
			w.postgres.Cut()
			load.await(random.IntN(300))
			w.kill(c)
		case 1:
			gone.whileBrokerIsDown(load, func() { c.kill() })
		default:
			w.kill(c)
		}
		c = startConnector(t, w.config)
	}
	gone.awaitMore()
	gone.whileBrokerIsDown(load, func() {})
	load.stop()
	w.arrived()
	gone.awaitEmpty()
	c.stop()
	h, _ := w.verify()
	w.wantDrained(h)
	gone.judge(h.Records)
}

// rows watches the rows in the table, and finds rows gone without the writer's
// doing.
type rows struct {
	*world
	conn *pgx.Conn

	mu      sync.Mutex // also guards conn
	removed []removal
	known   int // how many of removed have their ends
}

// removal is a row found to have gone.
type removal struct {
	id   string
	n    int64              // of the row, in the order of the inserts
	ends map[string][]int64 // of the topics, after the find
}

// watchSQL notes each row written and not withdrawn by the writer. A partition
// stays in view until dropped.
const watchSQL = `
CREATE TABLE written (id uuid PRIMARY KEY, n bigserial);
CREATE FUNCTION note_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_OP = 'INSERT' THEN
		INSERT INTO written VALUES (NEW.id);
	ELSIF current_setting('application_name') <> 'cdc-outbox' THEN
		DELETE FROM written WHERE id = OLD.id;
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER note_row AFTER INSERT OR DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION note_row();
CREATE FUNCTION remaining() RETURNS SETOF uuid LANGUAGE plpgsql AS $$
DECLARE part regclass;
BEGIN
	FOR part IN SELECT oid FROM pg_class WHERE relname LIKE 'outbox%' AND relkind = 'r' LOOP
		RETURN QUERY EXECUTE 'SELECT id FROM ONLY ' || part;
	END LOOP;
END $$`

// watchRows begins to watch, until the test ends.
func (w *world) watchRows() *rows {
	w.t.Helper()
	w.exec(watchSQL)
	r := &rows{world: w, conn: connect(w.t, w.url)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(10 * sampling)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				r.look(ctx)
			}
		}
	})
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

// look notes the rows gone since, and then the topics' ends, if the broker tells.
// A look fails while a partition is dropped at the same time; the next look finds
// the same.
func (r *rows) look(ctx context.Context) (ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if r.conn.IsClosed() {
		conn, err := pgx.Connect(ctx, r.url)
		if err != nil {
			return false
		}
		r.conn = conn
	}
	found, err := r.conn.Query(ctx, `DELETE FROM written WHERE id NOT IN (SELECT remaining()) RETURNING id::text, n`)
	if err != nil {
		return false
	}
	gone, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (g removal, err error) {
		err = row.Scan(&g.id, &g.n)
		return g, err
	})
	if err != nil {
		return false
	}
	r.removed = append(r.removed, gone...)
	answering, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	ends, err := checker.Ends(answering, r.admin, r.topics()...)
	if err != nil {
		return true
	}
	for ; r.known < len(r.removed); r.known++ {
		r.removed[r.known].ends = ends
	}
	return true
}

func (r *rows) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.removed)
}

// awaitMore returns once more rows have gone.
func (r *rows) awaitMore() {
	r.t.Helper()
	from := r.count()
	await.Until(r.t, "row that goes", func() bool { return r.count() > from })
}

// whileBrokerIsDown stops the broker for a while, calls do meanwhile, and wants
// every row written since to stay.
func (r *rows) whileBrokerIsDown(l *load, do func()) {
	r.t.Helper()
	r.broker.Stop(r.t)
	var last int64
	must.OK(r.t, r.sql.QueryRow(context.Background(), `SELECT last_value FROM written_n_seq`).Scan(&last))
	l.during(outage, func() bool { return true })
	do()
	await.Until(r.t, "look at the rows", func() bool { return r.look(context.Background()) })
	r.mu.Lock()
	early := slices.IndexFunc(r.removed, func(g removal) bool { return g.n > last })
	r.mu.Unlock()
	if early >= 0 {
		r.t.Errorf("row %s went while the broker was down, in which it was written", r.removed[early].id)
	}
	r.broker.Resume(r.t)
}

// awaitEmpty returns once no row is left, not even in a detached partition.
func (r *rows) awaitEmpty() {
	r.t.Helper()
	await.Until(r.t, "empty table", func() bool {
		var left int
		err := r.sql.QueryRow(context.Background(), `SELECT count(*) FROM remaining()`).Scan(&left)
		return err == nil && left == 0
	})
	await.Until(r.t, "last look at the rows", func() bool { return r.look(context.Background()) && r.complete() })
}

// complete tells whether the topics' ends are known for each gone row.
func (r *rows) complete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known == len(r.removed)
}

// judge wants the record of each removed row to be older than the removal.
func (r *rows) judge(records []checker.Record) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	first := map[string]checker.Record{}
	for _, rec := range records {
		for _, h := range rec.Headers {
			if _, ok := first[h.Value]; h.Key == "id" && !ok {
				first[h.Value] = rec
			}
		}
	}
	for _, g := range r.removed {
		if rec, ok := first[g.id]; !ok || rec.Offset >= g.ends[rec.Topic][rec.Partition] {
			r.t.Errorf("row %s went before it was in its topic", g.id)
		}
	}
	r.t.Logf("%d rows went", len(r.removed))
}
