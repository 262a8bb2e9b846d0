package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
)

const (
	looking = 50 * time.Millisecond // between two looks at a topic
	stalled = 2 * time.Minute       // without a new record, a drain has failed
)

// awaitRecords returns when the topic has as many records. alive tells why there
// will be no more.
func (k *kafka) awaitRecords(ctx context.Context, topic string, want int64, alive func(context.Context) error) error {
	var have int64
	last := time.Now()
	for n := 1; ; n++ {
		now, err := k.records(ctx, topic)
		if err != nil {
			return err
		}
		if now >= want {
			return nil
		}
		if now > have {
			have, last = now, time.Now()
		}
		if time.Since(last) > stalled {
			return fmt.Errorf("no record for %s, after %d of %d", stalled, have, want)
		}
		if n%20 == 0 { // once a second: to ask takes time of the processors
			if err := alive(ctx); err != nil {
				return fmt.Errorf("%w, after %d of %d records", err, have, want)
			}
		}
		if err := backoff.Sleep(ctx, looking); err != nil {
			return err
		}
	}
}

// records is how many the topic has.
func (k *kafka) records(ctx context.Context, topic string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	offsets, err := k.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	var n int64
	offsets.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, offsets.Error()
}

// arrival is when a topic's records were appended.
type arrival struct {
	first, last time.Time
	// atFirst are the records of the first millisecond: what arrived by then
	// took none of the time from first to last.
	atFirst int64
}

// rate is in records per second, of n in all.
func (a arrival) rate(n int64) float64 {
	return float64(n-a.atFirst) / max(a.last.Sub(a.first), time.Millisecond).Seconds()
}

// arrival asks the broker. The topic has a record.
func (k *kafka) arrival(ctx context.Context, topic string) (arrival, error) {
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	first, err := k.admin.ListOffsetsAfterMilli(ctx, 0, topic)
	if err != nil {
		return arrival{}, err
	}
	last, err := k.admin.ListMaxTimestampOffsets(ctx, topic)
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
	after, err := k.admin.ListOffsetsAfterMilli(ctx, from+1, topic)
	if err != nil {
		return arrival{}, err
	}
	a := arrival{first: time.UnixMilli(from), last: time.UnixMilli(to)}
	after.Each(func(o kadm.ListedOffset) { a.atFirst += o.Offset })
	return a, after.Error()
}
