package consumer

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
)

// Observer is told of a Consumer's actions, beside the Runner's observer. Each
// function is optional. They are called concurrently, some with locks held:
// they must return at once and not call the Consumer.
type Observer struct {
	// Processed: an attempt at a record ended so after elapsed.
	Processed func(r *kgo.Record, result idempotency.Result, err error, elapsed time.Duration)
	// PausedPartitions: so many more, or fewer, partitions than before stand
	// still, entirely or for some keys: a record is elsewhere, failed or lost the
	// lease and waits for the next attempt, or the store is unavailable.
	PausedPartitions func(change int)
	// Committed: a commit ended after elapsed.
	Committed func(elapsed time.Duration, err error)
	// Abandoned: the contexts of so many handlers were ended, because of a
	// rebalance or a stop that did not wait any longer.
	Abandoned func(handlers int)
}

func (o *Observer) processed(r *kgo.Record, result idempotency.Result, err error, begun time.Time) {
	if o.Processed != nil {
		o.Processed(r, result, err, time.Since(begun))
	}
}

func (o *Observer) pausedPartitions(change int) {
	if o.PausedPartitions != nil && change != 0 {
		o.PausedPartitions(change)
	}
}

func (o *Observer) committed(begun time.Time, err error) {
	if o.Committed != nil {
		o.Committed(time.Since(begun), err)
	}
}

func (o *Observer) abandoned(handlers int) {
	if o.Abandoned != nil {
		o.Abandoned(handlers)
	}
}
