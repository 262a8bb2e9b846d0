package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

const (
	// slack is how much longer than planned a traffic may last.
	slack = time.Minute
	// warmRate is the least rate at which a JVM is warmed up: ten events per
	// second compile nothing.
	warmRate = 1000
)

// steadies measures each subject's cost, and how late events are, while rows are
// committed at a steady pace.
func (s *stage) steadies(ctx context.Context) error {
	return s.atRates(ctx, "", func() []subject {
		return []subject{s.ours(), s.tuned(poll1Name, forLatency, true), s.tuned(poll10Name, forBoth, true), s.untuned(true)}
	})
}

// atRates compares the subjects at each rate. where says more of the load.
func (s *stage) atRates(ctx context.Context, where string, subjects func() []subject) error {
	for _, text := range s.rates {
		rate, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		err = s.play(ctx, game{
			load:     s.trafficOf(rate) + where,
			subjects: subjects(),
			take: func(ctx context.Context, who subject) (map[string]float64, error) {
				return s.steadyOn(ctx, who, rate, s.settle, s.window)
			},
			warmUp: func(ctx context.Context, who subject) error {
				_, err := s.steadyOn(ctx, who, max(rate, warmRate), s.warmTraffic, time.Second)
				return err
			},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// trafficOf names the traffic of so many events per second.
func (s *stage) trafficOf(rate int) string {
	rows := "one row"
	if s.trafficPerTx > 1 {
		rows = fmt.Sprintf("%d rows", s.trafficPerTx)
	}
	return fmt.Sprintf("steady, %d commits/s of %s of %d+100 bytes", rate/s.trafficPerTx, rows, s.payload)
}

func (s *stage) steadyOn(ctx context.Context, who subject, rate int, settle, window time.Duration) (map[string]float64, error) {
	return s.on(ctx, who, s.newSlot, func(ctx context.Context, t task, r running) (map[string]float64, error) {
		return s.steady(ctx, t, r, rate, settle, window)
	})
}

func (s *stage) newSlot(ctx context.Context, t task) error { return s.db.CreateSlot(ctx, t.slot) }

// steady measures for a window, after the traffic has settled.
func (s *stage) steady(ctx context.Context, t task, r running, rate int, settle, window time.Duration) (values map[string]float64, err error) {
	if err := s.db.AwaitActive(ctx, t.slot, true, r.Alive); err != nil {
		return nil, err
	}
	log := newJournal(s.topics, int((settle+window+slack).Seconds()*float64(rate)))
	c, err := startConsumer(ctx, s.kafka, t.topic, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	writers := startTraffic(ctx, s.db.URL, s.payload, rate, s.trafficPerTx, log)
	defer func() { err = errors.Join(err, writers.end()) }()

	if err := backoff.Sleep(ctx, settle); err != nil {
		return nil, err
	}
	before, from, err := snapshot(r, log)
	if err != nil {
		return nil, err
	}
	if err := backoff.Sleep(ctx, window); err != nil {
		return nil, err
	}
	after, to, err := snapshot(r, log)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(writers.end(), awaitAll(ctx, log, r)); err != nil {
		return nil, err
	}
	late := log.latencies(from, to)
	return map[string]float64{
		metricRate: float64(len(late)) / time.Duration(to-from).Seconds(),
		metricCPU:  micros(after.CPU-before.CPU) / float64(max(1, len(late))),
		metricPeak: after.Peak,
		metricP50:  millis(figures.Percentile(late, 50)),
		metricP99:  millis(figures.Percentile(late, 99)),
		metricP999: millis(figures.Percentile(late, 99.9)),
	}, nil
}

// snapshot is the subject's usage, and the time.
func snapshot(r running, log *journal) (rig.Usage, int64, error) {
	u, err := r.Usage()
	return u, log.now(), err
}

// awaitAll returns when every event committed was received.
func awaitAll(ctx context.Context, log *journal, r running) error {
	began := time.Now()
	return rig.Await(ctx, looking, func() (bool, error) {
		missing := log.missing()
		if missing > 0 && time.Since(began) > stalled {
			return false, fmt.Errorf("%d events were not received %s after the last commit", missing, stalled)
		}
		return missing == 0, r.Alive(ctx)
	})
}
