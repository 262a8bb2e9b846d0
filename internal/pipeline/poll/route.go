package poll

import (
	"errors"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// route makes events of rows. The error is one of the configuration.
func route(router *transform.Router, t *Table, rows []row) ([]delivery.Item, error) {
	items := make([]delivery.Item, len(rows))
	for i, r := range rows {
		ev, err := router.Route(&pg.Row{CommitTime: r.time, Relation: t.Relation, Values: r.values})
		bad, isBad := errors.AsType[*transform.BadEvent](err)
		if err != nil && !isBad {
			return nil, err
		}
		items[i] = delivery.Item{Event: ev, Bad: bad}
	}
	return items, nil
}

// stopRemedy names the ways past a bad event.
func stopRemedy(*transform.Event, *transform.BadEvent) string { return stopText }

const stopText = "correct the row or the cause and start again: neither it nor a later one of its batch was marked as published; " +
	"or set errors.on_bad_event to dead_letter (keeps it in errors.dead_letter_topic) or skip"
