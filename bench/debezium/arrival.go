package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

const (
	looking = 50 * time.Millisecond // between two looks at a topic
	stalled = 2 * time.Minute       // without a new record, a drain has failed
)

// awaitRecords returns when the topic has as many records. alive tells why there
// will be no more.
func awaitRecords(ctx context.Context, k *rig.Broker, topic string, want int64, alive func(context.Context) error) error {
	var have int64
	last := time.Now()
	asked := 0
	return rig.Await(ctx, looking, func() (bool, error) {
		now, err := k.Records(ctx, topic)
		if err != nil || now >= want {
			return err == nil, err
		}
		if now > have {
			have, last = now, time.Now()
		}
		if time.Since(last) > stalled {
			return false, fmt.Errorf("no record for %s, after %d of %d", stalled, have, want)
		}
		if asked++; asked%20 == 0 { // once a second: to ask takes time of the processors
			if err := alive(ctx); err != nil {
				return false, fmt.Errorf("%w, after %d of %d records", err, have, want)
			}
		}
		return false, nil
	})
}

// arrival is when a topic's records were appended.
type arrival struct {
	first, last time.Time
	// atFirst are the records of the first millisecond: they took none of the time
	// from first to last.
	atFirst int64
}

// rate is in records per second, of n in all.
func (a arrival) rate(n int64) float64 {
	return float64(n-a.atFirst) / max(a.last.Sub(a.first), time.Millisecond).Seconds()
}

// arrivalIn asks the broker. The topic has a record.
func arrivalIn(ctx context.Context, k *rig.Broker, topic string) (arrival, error) {
	ctx, cancel := context.WithTimeout(ctx, rig.KafkaTimeout)
	defer cancel()
	first, err := k.Admin.ListOffsetsAfterMilli(ctx, 0, topic)
	if err != nil {
		return arrival{}, err
	}
	last, err := k.Admin.ListMaxTimestampOffsets(ctx, topic)
	if err != nil {
		return arrival{}, err
	}
	from, to := int64(-1), int64(-1)
	first.Each(func(o kadm.ListedOffset) {
		if o.Timestamp >= 0 && (from < 0 || o.Timestamp < from) {
			from = o.Timestamp
		}
	})
	last.Each(func(o kadm.ListedOffset) { to = max(to, o.Timestamp) })
	if from < 0 || to < from {
		return arrival{}, fmt.Errorf("topic %s says its records are from %d to %d", topic, from, to)
	}
	after, err := k.Admin.ListOffsetsAfterMilli(ctx, from+1, topic)
	if err != nil {
		return arrival{}, err
	}
	a := arrival{first: time.UnixMilli(from), last: time.UnixMilli(to)}
	after.Each(func(o kadm.ListedOffset) { a.atFirst += o.Offset })
	return a, after.Error()
}
