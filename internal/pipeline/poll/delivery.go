package poll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/stream"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// chunkBytes is how much is handed to the sink at a time: enough for a full
// Kafka batch, little enough that something is acknowledged before a claim has
// to end.
const chunkBytes = 768 << 10

// item is a row's event; bad is set where the row could not become a record.
type item struct {
	event *transform.Event
	bad   *transform.BadEvent
}

// route makes events of rows. The error is one of the configuration.
func route(router *transform.Router, t *Table, rows []row) ([]item, error) {
	items := make([]item, len(rows))
	for i, r := range rows {
		ev, err := router.Route(&pg.Row{CommitTime: r.time, Relation: t.Relation, Values: r.values})
		bad, isBad := errors.AsType[*transform.BadEvent](err)
		if err != nil && !isBad {
			return nil, err
		}
		items[i] = item{ev, bad}
	}
	return items, nil
}

// delivery hands events to the sink. Its methods may be called from several
// goroutines.
type delivery struct {
	policy  string
	metrics Metrics
	digest  *digest.Log
	last    atomic.Pointer[stream.LastEvent]
}

// deliver writes the items in order, each bad one between its neighbours. It
// returns how many of them, from the front, are dealt with.
func (d *delivery) deliver(ctx context.Context, out sink.Sink, items []item) (done int, err error) {
	for done < len(items) {
		n := 1
		if it := items[done]; it.bad != nil {
			err = d.reject(ctx, out, it.event, it.bad)
		} else {
			n = chunk(items[done:])
			err = d.write(ctx, out, items[done:done+n])
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// chunk is how many of the items, the first of which is good, go to the sink
// together.
func chunk(items []item) (n int) {
	var bytes int64
	for n < len(items) && items[n].bad == nil {
		if bytes += items[n].event.Size(); n > 0 && bytes > chunkBytes {
			break
		}
		n++
	}
	return n
}

func (d *delivery) write(ctx context.Context, out sink.Sink, items []item) error {
	events := make([]*transform.Event, len(items))
	for i, it := range items {
		events[i] = it.event
	}
	var rejected map[*transform.Event]bool
	err := out.Deliver(ctx, events, func(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
		if rejected == nil {
			rejected = map[*transform.Event]bool{}
		}
		rejected[ev] = true
		return d.reject(ctx, out, ev, bad)
	})
	if err != nil {
		return fmt.Errorf("deliver: %w", err)
	}
	events = slices.DeleteFunc(events, func(ev *transform.Event) bool { return rejected[ev] })
	for _, ev := range events {
		if ev.Warning != "" {
			d.metrics.Warned(ev.Warning)
			d.digest.Note(digest.Kind{Level: zap.WarnLevel, Message: "event is published, but not as one would expect", Detail: string(ev.Warning)},
				zap.String("warning", string(ev.Warning)), zap.String("table", ev.Table), zap.String("event_id", ev.Name()))
		}
	}
	d.metrics.Published(events)
	if len(events) > 0 {
		d.last.Store(stream.LastOf(events))
	}
	return nil
}

// reject carries out errors.on_bad_event.
func (d *delivery) reject(ctx context.Context, out sink.Sink, ev *transform.Event, bad *transform.BadEvent) error {
	fields := []zap.Field{
		zap.String("reason", string(bad.Reason)),
		zap.String("table", ev.Table),
		zap.String("event_id", ev.Name()),
		zap.Error(bad.Err),
	}
	switch d.policy {
	case transform.BadEventDeadLetter:
		if err := out.DeadLetter(ctx, ev, bad); err != nil {
			return fmt.Errorf("event %s: %w", ev.Name(), err)
		}
		d.metrics.DeadLettered(bad.Reason)
		d.digest.Note(digest.Kind{Level: zap.WarnLevel, Message: "event written to the dead-letter topic", Detail: string(bad.Reason)}, fields...)
		return nil
	case transform.BadEventSkip:
		d.metrics.Skipped(bad.Reason)
		d.digest.Note(digest.Kind{Level: zap.WarnLevel, Message: "event skipped, as errors.on_bad_event says", Detail: string(bad.Reason)}, fields...)
		return nil
	}
	return failure.Configf(stopRemedy, "bad event %s of %s: %w", ev.Name(), ev.Table, bad)
}

const stopRemedy = "correct the row or the cause and start again: neither it nor a later one of its batch was marked as published; " +
	"or set errors.on_bad_event to dead_letter (keeps it in errors.dead_letter_topic) or skip"
