package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

const (
	onceOrMore  = "at_least_once"
	exactlyOnce = "exactly_once"
)

// delivered is cdc-outbox with one of its two ways to deliver.
type delivered struct{ ours }

func (s *stage) delivered(how string) subject {
	return delivered{ours{s.connector, s.road(), append(rig.Settings{"sink.kafka.delivery=" + how}, s.set...), how}}
}

// staysWarm implements subject: the brokers outlive a run, and a broker is slow until
// the JVM has compiled the code for the traffic.
func (d delivered) staysWarm() bool { return true }

// start implements subject. Exactly once does not begin with a slot without a record
// of its deliveries, so there is a setup first.
func (d delivered) start(ctx context.Context, t task) (running, error) {
	if d.name() == exactlyOnce {
		settings := append(d.road.wiring(t), d.set...)
		if err := d.connector.Do(ctx, []string{"setup", "--accept-gap", "--yes"}, settings...); err != nil {
			return nil, err
		}
	}
	return d.ours.start(ctx, t)
}

// deliveries compares the two ways to deliver, for a consumer with read_committed: how
// fast a backlog becomes visible, and how late events are.
func (s *stage) deliveries(ctx context.Context) error {
	subjects := []subject{s.delivered(onceOrMore), s.delivered(exactlyOnce)}
	where := fmt.Sprintf(", brokers: %d", s.brokers)
	if err := s.drainEach(ctx, s.load(), where, s.visible, nil, subjects...); err != nil {
		return err
	}
	return s.atRates(ctx, where, func() []subject { return subjects })
}

// visible measures from the first event a consumer sees to the last.
func (s *stage) visible(ctx context.Context, t task, r running, b rig.Backlog) (map[string]float64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.kafka.Addr), kgo.ConsumeTopics(t.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var first, last time.Time
	seen, atFirst := 0, 0
	events := b.Events()
	for seen < events {
		some, cancel := context.WithTimeout(ctx, stalled)
		fetches := client.PollFetches(some)
		cancel()
		if err := errors.Join(fetches.Err(), r.Alive(ctx)); err != nil {
			return nil, fmt.Errorf("after %d of %d events: %w", seen, events, err)
		}
		last = time.Now()
		seen += fetches.NumRecords()
		if first.IsZero() && seen > 0 {
			first, atFirst = last, seen
		}
	}
	now, err := r.Usage()
	if err != nil {
		return nil, err
	}
	return map[string]float64{
		metricRate: float64(seen-atFirst) / last.Sub(first).Seconds(),
		metricCPU:  micros(now.CPU) / float64(events),
		metricPeak: now.Peak,
	}, nil
}
