package admin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
)

var errListed = errors.New("enough events are listed")

// list counts the missing events by topic, and lists the first.
func (a *auditor) list(ctx context.Context) error {
	counts := make(map[uint16]int64)
	err := a.ids.Missing(func(e *audit.Entry) error {
		counts[e.Topic]++
		return nil
	})
	if err != nil {
		return err
	}
	for n, missing := range counts {
		a.result.Topics = append(a.result.Topics, MissingTopic{a.topics.Name(n), missing})
	}
	slices.SortFunc(a.result.Topics, func(a, b MissingTopic) int { return strings.Compare(a.Topic, b.Topic) })
	err = a.rows.Missing(ctx, func(group []audit.Entry, items []delivery.Item) error {
		for i, it := range items {
			if len(a.result.Events) >= a.opts.List {
				return errListed
			}
			ev := it.Event
			missing := MissingEvent{ID: string(ev.ID), Topic: a.topics.Name(group[i].Topic), Key: string(ev.Record.Key)}
			if at := group[i].At; at != audit.NoTime && a.opts.marked == nil {
				missing.At = time.UnixMicro(at).UTC()
			}
			a.result.Events = append(a.result.Events, missing)
		}
		return nil
	})
	if errors.Is(err, errListed) {
		return nil
	}
	return err
}
