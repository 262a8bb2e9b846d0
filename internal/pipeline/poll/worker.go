package poll

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// lookEvery is how often definition and backlog of the tables are looked at.
const lookEvery = 10 * time.Second

// stallWaits are the waits after a failed delivery.
var stallWaits = backoff.Range{First: 100 * time.Millisecond, Longest: 5 * time.Second}

// worker claims, publishes and marks batch after batch, on a connection of its own.
// run is its only goroutine.
type worker struct {
	*Pipeline
	number  int             // 0: polls
	working context.Context // ends when batches in hand are given up
	router  *transform.Router
	pace    pace

	conn   *pgx.Conn
	tables []*tableState
	looked time.Time // at the tables
	stalls backoff.Series
	alone  bool // at the start, nobody else was known to publish, or to have published, the same rows
}

// tableState is a worker's state of a table.
type tableState struct {
	*Table
	limit int  // of rows for the next batch
	most  int  // bound of limit
	busy  bool // the last batch was as large as possible
	held  int  // rows left by the last batch, as other sessions hold them
}

func newWorker(working context.Context, r *Pipeline, number int) (*worker, error) {
	router, err := transform.New(r.event, r.route)
	if err != nil {
		return nil, err
	}
	p := r.opts
	return &worker{
		Pipeline: r, number: number, working: working, router: router,
		pace:   pace{interval: p.Interval, max: p.MaxInterval, wake: r.notified},
		stalls: backoff.Series{Range: stallWaits},
	}, nil
}

// run works until ctx ends (nil), or a new connection would not help (the error).
func (w *worker) run(ctx context.Context) error {
	one := func(ctx context.Context) error {
		if w.number > 0 && !w.parked(ctx) {
			return nil
		}
		return w.session(ctx)
	}
	return session.Keep(ctx, one, sink.ErrOutputGone, func(err error, wait time.Duration) {
		if w.number == 0 {
			w.health.postgres(err)
		}
		w.outage.Failed("PostgreSQL session ended, will reconnect", err, zap.Int("worker", w.number), zap.Duration("wait", wait))
		w.metrics.Reconnected("postgres")
	})
}

// parked returns once there is a backlog; false when ctx ends.
func (w *worker) parked(ctx context.Context) bool {
	select {
	case <-w.Pipeline.backlog:
		return true
	case <-ctx.Done():
		return false
	}
}

// session is the life of a connection, and returns the reason of the end.
func (w *worker) session(ctx context.Context) error {
	conn, err := catalog.ConnectPooled(ctx, w.url)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer catalog.Close(conn)
	defer w.lookAway()
	w.conn, w.looked = conn, time.Time{}
	if err := w.look(ctx); err != nil {
		return err
	}
	if w.number > 0 {
		return w.help(ctx)
	}
	w.alone = true
	w.health.postgres(nil)
	w.announce()
	return w.work(ctx, w.pace.found, func() bool { return w.pace.wait(ctx) == nil })
}

// help works off a backlog, and waits for the next.
func (w *worker) help(ctx context.Context) error {
	return w.work(ctx, func() {}, func() bool {
		w.lookAway()
		return backoff.Sleep(ctx, w.opts.Interval) == nil && w.parked(ctx)
	})
}

// work goes over the tables until ctx ends. After a round with rows it calls found, after
// any other idle, for a wait; false ends work.
func (w *worker) work(ctx context.Context, found func(), idle func() bool) error {
	for ctx.Err() == nil {
		if err := w.look(ctx); err != nil {
			return err
		}
		some, err := w.round(ctx)
		if err != nil {
			return err
		}
		w.outage.Over()
		switch {
		case some:
			found()
		case !idle():
			return nil
		}
	}
	return nil
}

// lookAway forgets how many rows other sessions hold, because the worker does not look
// for now.
func (w *worker) lookAway() {
	for _, t := range w.tables {
		w.held(t, 0)
	}
}

// round does a batch of each table with unpublished rows, and reports whether any were
// published.
func (w *worker) round(ctx context.Context) (found bool, err error) {
	waiting := false
	for _, t := range w.tables {
		if ctx.Err() != nil {
			return false, nil
		}
		if !t.busy && w.number == 0 {
			some, err := w.any(t)
			if err != nil {
				return false, err
			}
			if !some {
				w.held(t, 0)
				continue
			}
		}
		waiting = true
		published, err := w.batch(ctx, t)
		if err != nil {
			return false, err
		}
		found = found || published
		if t.busy {
			session.Wake(w.Pipeline.backlog)
		}
	}
	if !waiting && w.number == 0 {
		w.sink.idle()
	}
	return found, nil
}

// any asks whether the table has an unpublished row, as cheaply as possible.
func (w *worker) any(t *tableState) (bool, error) {
	defer w.health.asks()()
	results, err := execute(w.working, w.conn.PgConn(), catalog.Environment+";\n"+t.anySQL())
	if err != nil {
		return false, fmt.Errorf("look for unpublished rows of %s: %w", t.Name, classify(err, t.Table))
	}
	return len(results[len(results)-1].Rows) > 0, nil
}

// look reads, once in a while, the tables' definitions and their backlog.
func (w *worker) look(ctx context.Context) error {
	if time.Since(w.looked) < lookEvery {
		return nil
	}
	if w.number == 0 {
		defer w.health.asks()()
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	total, err := w.readTables(ctx)
	if err != nil {
		return err
	}
	w.looked = time.Now()
	if w.number == 0 {
		w.health.backlogSeen(total)
	}
	return nil
}

// readTables reads the tables' definitions and, in the first worker, the total backlog.
func (w *worker) readTables(ctx context.Context) (total Backlog, err error) {
	err = catalog.Pooled(ctx, w.conn, func() error { return w.readEach(ctx, &total) })
	return total, err
}

func (w *worker) readEach(ctx context.Context, total *Backlog) error {
	for i, name := range w.Pipeline.tables {
		t, err := ReadTable(ctx, w.conn, w.opts, w.event, w.router, name)
		if err != nil {
			return err
		}
		switch {
		case i == len(w.tables):
			w.tables = append(w.tables, &tableState{Table: t, limit: w.opts.BatchSize, most: w.opts.BatchSize})
		case !w.tables[i].equal(t):
			w.log.Info("the outbox table's definition has changed", zap.Stringer("table", name))
			w.tables[i].Table = t
		}
		if w.number > 0 {
			continue
		}
		if err := t.Permitted(ctx, w.conn); err != nil {
			return err
		}
		if err := w.meant(ctx, t); err != nil {
			return err
		}
		b, err := ReadBacklog(ctx, w.conn, t)
		if err != nil {
			return err
		}
		total.Rows += b.Rows
		total.Oldest = max(total.Oldest, b.Oldest)
	}
	return nil
}

// meant is the error of a table the instance would publish once more. A worker looks
// at its start only: a later instance with a mistake must not stop the present one.
func (w *worker) meant(ctx context.Context, t *Table) error {
	if w.alone {
		return nil
	}
	if err := t.Unmarked(ctx, w.conn); err != nil {
		return err
	}
	return w.notStreamed(ctx, t)
}

// notStreamed is the error of a table read also from a slot, by a running instance.
func (w *worker) notStreamed(ctx context.Context, t *Table) error {
	slots, err := catalog.Reading{Tables: []uint32{t.OID}}.OtherReaders(ctx, w.conn)
	if err != nil || len(slots) == 0 {
		return err
	}
	return failure.Configf("set source.mode to wal, and source.slot to "+slots[0]+"; or stop that instance first",
		"table %s is read from slot %s by a running instance: each event would be published twice", t.Name, slots[0])
}

// announce logs the tables, and once their warnings.
func (w *worker) announce() {
	for _, t := range w.tables {
		w.log.Info("polling", zap.Stringer("table", t.Name), zap.Strings("order_by", t.Order.Columns), zap.String("index", t.Index))
	}
	w.warned.Do(func() {
		for _, t := range w.tables {
			for _, warning := range t.Warnings() {
				w.log.Warn(warning.Error(), zap.Stringer("table", t.Name), zap.String("remedy", failure.RemedyOf(warning)))
			}
		}
	})
}
