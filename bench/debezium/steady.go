package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// warmRate is the least rate at which a JVM is warmed up: ten events per second compile
// nothing.
const warmRate = 1000

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
	f, err := s.startFlow(ctx, r, []string{s.db.URL}, []string{t.topic}, roomFor(rate, settle+window))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.consumer.close()) }()
	return f.measure(ctx, rate, settle, window)
}
