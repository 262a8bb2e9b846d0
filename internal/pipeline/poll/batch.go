package poll

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// batch claims, publishes and marks rows. It returns errors of the database, and
// errors for an operator. After any other failed delivery it waits.
func (w *worker) batch(ctx context.Context, t *tableState) (published bool, err error) {
	c, err := w.claim(ctx, t)
	if err != nil || c == nil {
		t.busy = false
		w.held(t, 0)
		return false, err
	}
	rows, free, seen, err := c.rows(w.working, t.limit, w.bytes)
	if surplus, ok := errors.AsType[*surplusError](err); ok {
		c.rollback(w.working)
		t.limit, t.busy = surplus.fit, true
		return false, nil
	}
	if err != nil {
		t.most = max(1, t.limit/2) // perhaps too many to be read in time
		t.limit = t.most
		rollback(w.working, w.conn.PgConn())
		return false, err
	}
	t.busy = seen == t.limit
	w.held(t, len(rows)-len(free))
	if !t.busy {
		t.most = w.opts.BatchSize // the backlog has ended
	}
	t.resize(seen, len(rows))
	if len(free) == 0 {
		c.rollback(w.working)
		t.busy = false
		return false, nil
	}
	items, err := route(w.router, t.Table, free, w.takes)
	if err != nil {
		c.rollback(w.working)
		return false, err
	}
	done, failed := w.publish(c, items)
	switch {
	case done > 0:
		err = c.mark(w.working, free[:done])
	case errors.Is(failed, errClaimEnded):
		return false, failed
	default:
		c.rollback(w.working)
	}
	if failed == nil {
		w.stalls.Reset()
	} else if err == nil {
		t.limit = max(1, t.limit/2) // a slow broker must be able to take the batch in time
		err = w.outlast(ctx, failed)
	}
	return done > 0, err
}

// held notes how many rows of the table the worker may not publish, as they are held
// by another session or behind an earlier row of the same key.
func (w *worker) held(t *tableState, rows int) {
	w.heldBack.Add(int64(rows - t.held))
	t.held = rows
}

// claim begins a claim with at least a single lane. It returns nil if others have all
// lanes.
func (w *worker) claim(ctx context.Context, t *tableState) (*claim, error) {
	p := w.opts
	lanes := w.quota.rotated()
	limit, count := w.quota.limit(t.busy)
	c, present, err := beginClaim(w.working, w.conn.PgConn(), t.Table, p.ClaimTimeout, lanes, limit, count)
	if err != nil {
		return nil, err
	}
	if count {
		w.quota.among(present)
	}
	if len(c.held) == 0 {
		if err := c.await(ctx, lanes, limit, min(p.MaxInterval, laneWait)); err != nil {
			return nil, err
		}
	}
	if len(c.held) == 0 {
		return nil, nil
	}
	return c, nil
}

// publish delivers for as long as the claim may last, and returns how many items from
// the front are dealt with. The server keeps the claim at least until then, also for
// a suspended process.
func (w *worker) publish(c *claim, items []delivery.Item) (done int, err error) {
	var bytes int64
	for _, it := range items {
		bytes += it.Size
	}
	w.inFlightEvents.Add(int64(len(items)))
	w.inFlightBytes.Add(bytes)
	defer func() {
		w.inFlightEvents.Add(-int64(len(items)))
		w.inFlightBytes.Add(-bytes)
	}()
	ctx, cancel := context.WithTimeoutCause(w.working, w.opts.ClaimTimeout, errStalled)
	defer cancel()
	until := c.asked.Add(w.opts.ClaimTimeout + claimMargin/2)
	c.whileHeld(ctx, func(ctx context.Context) {
		err = w.sink.use(ctx, until, func(out sink.Sink) error {
			done, err = w.delivery.Deliver(ctx, out, len(items), func(i int) *delivery.Item { return &items[i] })
			return err
		})
	})
	return done, err
}

// outlast waits after a failed delivery, and returns the error if only an operator or
// another process can mend the cause.
func (w *worker) outlast(ctx context.Context, failed error) error {
	if failure.ClassOf(failed) != failure.Transient || errors.Is(failed, sink.ErrOutputGone) {
		return failed
	}
	if w.working.Err() != nil {
		return nil // given up
	}
	wait := w.stalls.Next()
	level := w.log.Warn
	if errors.Is(failed, errStalled) && w.number > 0 {
		level = w.log.Debug // the other worker says so too
	}
	level("events were not delivered, will retry; their rows are free meanwhile", zap.Error(failed), zap.Duration("wait", wait))
	_ = backoff.Sleep(ctx, wait)
	return nil
}

// resize adapts the size of the next batch: seen rows were found, and as many of them
// read as the bytes allow.
func (t *tableState) resize(seen, read int) {
	switch {
	case read < seen:
		t.limit = read
	case seen == t.limit:
		t.limit = min(2*t.limit, t.most)
	}
}

// inOrder returns the rows to be published now, in order, and the keys held back:
// rows held by another session hold back the later ones of their keys.
func inOrder(rows []row) (free []row, keys []string) {
	var held map[string]bool
	for _, r := range rows {
		switch {
		case r.rel == "":
			if held == nil {
				held = map[string]bool{}
			}
			if !held[r.key] {
				keys = append(keys, r.key)
			}
			held[r.key] = true
		case !held[r.key]:
			free = append(free, r)
		}
	}
	return free, keys
}

// route makes events of rows. An error is the configuration's.
func route(router *transform.Router, t *Table, rows []row, takes func(bytes int) bool) ([]delivery.Item, error) {
	items := make([]delivery.Item, len(rows))
	for i, r := range rows {
		ev, err := router.Route(&pg.Row{CommitTime: r.time, Relation: t.Relation, Values: r.values})
		bad, isBad := errors.AsType[*transform.BadEvent](err)
		if err != nil && !isBad {
			return nil, err
		}
		items[i] = delivery.Item{Event: ev, Bad: bad, Size: delivery.SizeOf(ev, takes)}
	}
	return items, nil
}

// stopRemedy names the ways past a bad event. Neither the row nor a later one
// of its batch is marked as published.
func stopRemedy(_ *transform.Event, bad *transform.BadEvent) string {
	return "correct the row, and start again; otherwise " + delivery.PastBadEvent(bad)
}
