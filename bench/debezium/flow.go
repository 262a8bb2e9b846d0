package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// slack is how much longer than planned a traffic may last.
const slack = time.Minute

// roomFor is how many events a traffic may have.
func roomFor(rate int, planned time.Duration) int {
	return int((planned + slack).Seconds() * float64(rate))
}

// flow is events on their way from databases through a running subject to a consumer.
type flow struct {
	*stage
	subject  running
	urls     []string
	log      *journal
	consumer *consumer // the caller's to close
}

// startFlow starts the consumer. The topics have no record yet. room is for the events
// of all traffic.
func (s *stage) startFlow(ctx context.Context, r running, urls, topics []string, room int) (*flow, error) {
	log := newJournal(s.topics, room)
	c, err := startConsumer(ctx, s.kafka, topics, log)
	return &flow{s, r, urls, log, c}, err
}

// measure measures a traffic for a window, after the traffic has settled, and returns
// when every event has arrived.
func (f *flow) measure(ctx context.Context, rate int, settle, window time.Duration) (values map[string]float64, err error) {
	writers := startTraffic(ctx, f.urls, f.payload, rate, f.trafficPerTx, f.log)
	defer func() { err = errors.Join(err, writers.end()) }()

	if err := backoff.Sleep(ctx, settle); err != nil {
		return nil, err
	}
	before, from, err := f.snapshot()
	if err != nil {
		return nil, err
	}
	if err := backoff.Sleep(ctx, window); err != nil {
		return nil, err
	}
	after, to, err := f.snapshot()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(writers.end(), f.awaitAll(ctx)); err != nil {
		return nil, err
	}
	late := f.log.latencies(from, to)
	return map[string]float64{
		metricRate: float64(len(late)) / time.Duration(to-from).Seconds(),
		metricCPU:  micros(after.CPU-before.CPU) / float64(max(1, len(late))),
		metricRSS:  after.RSS,
		metricPeak: after.Peak,
		metricP50:  millis(figures.Percentile(late, 50)),
		metricP99:  millis(figures.Percentile(late, 99)),
		metricP999: millis(figures.Percentile(late, 99.9)),
	}, nil
}

// snapshot is the subject's usage, and the time.
func (f *flow) snapshot() (rig.Usage, int64, error) {
	u, err := f.subject.Usage()
	return u, f.log.now(), err
}

// awaitAll returns when every event committed was received.
func (f *flow) awaitAll(ctx context.Context) error {
	began := time.Now()
	return rig.Await(ctx, looking, func() (bool, error) {
		missing := f.log.missing()
		if missing > 0 && time.Since(began) > stalled {
			return false, fmt.Errorf("%d events were not received %s after the last commit", missing, stalled)
		}
		return missing == 0, f.subject.Alive(ctx)
	})
}
