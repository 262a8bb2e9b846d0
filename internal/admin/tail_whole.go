package admin

import (
	"context"
	"strconv"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// held are the events of the transaction being read, if run publishes the
// transaction as a whole: their number is known at the commit.
type held struct {
	limit   int64 // in bytes; a larger transaction is not a whole. 0: nothing is held
	skips   bool  // bad events are not published, so not counted
	events  []heldEvent
	bytes   int64
	tooMany bool
}

type heldEvent struct {
	*transform.Event
	bad *transform.BadEvent
}

// newHeld returns a held for transactions held by run as well.
func newHeld(cfg *config.Config) held {
	kafka := cfg.Sink.Kafka
	if kafka == nil || !kafka.TransactionBoundaries || !cfg.Event.PositionHeaders {
		return held{}
	}
	return held{limit: kafka.MaxBufferedBytes, skips: cfg.Errors.OnBadEvent == transform.BadEventSkip}
}

// hold prints an event, or keeps the event for the commit.
func (t *tail) hold(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
	h := &t.held
	if h.limit == 0 || h.tooMany || ev.XID == 0 { // a message of no transaction
		return t.show(ctx, ev, bad)
	}
	h.events, h.bytes = append(h.events, heldEvent{ev, bad}), h.bytes+ev.Size()
	if h.bytes > h.limit && len(h.events) > 1 {
		h.tooMany = true
		return t.release(ctx)
	}
	return nil
}

// committed prints the held events, with the header of their number.
func (t *tail) committed(ctx context.Context) error {
	total := len(t.held.events)
	for _, e := range t.held.events {
		if e.bad != nil && t.held.skips {
			total--
		}
	}
	text := strconv.AppendInt(nil, int64(total), 10)
	for _, e := range t.held.events {
		if e.bad == nil || !t.held.skips {
			e.SetTotal(text)
		}
	}
	t.held.tooMany = false
	return t.release(ctx)
}

// release prints the held events.
func (t *tail) release(ctx context.Context) error {
	events := t.held.events
	t.held.events, t.held.bytes = nil, 0
	for _, e := range events {
		if err := t.show(ctx, e.Event, e.bad); err != nil {
			return err
		}
	}
	return nil
}
