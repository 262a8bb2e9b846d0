package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// drains measures how fast each subject empties a backlog. Each has its own slot
// at the backlog's beginning and a topic of its own.
func (s *stage) drains(ctx context.Context) error {
	load := fmt.Sprintf("drain of %d rows of %d+100 bytes, %d per transaction", s.rows/s.perTx*s.perTx, s.payload, s.perTx)
	fmt.Println("committing the backlog:", load)
	b, err := s.db.fill(ctx, s.options)
	if err != nil {
		return fmt.Errorf("fill the backlog: %w", err)
	}
	take := func(ctx context.Context, who subject) (map[string]float64, error) { return s.drainOn(ctx, who, b) }
	err = s.play(ctx, game{
		load: load,
		subjects: []subject{
			s.ours(),
			s.tuned(warmName, forThroughput, true),
			s.tuned(coldName, forThroughput, false),
		},
		take: take,
		warmUp: func(ctx context.Context, who subject) error {
			for range s.warmDrains {
				if _, err := take(ctx, who); err != nil {
					return err
				}
			}
			return nil
		},
		limit: func(ctx context.Context) (map[string]float64, error) { return s.limit(ctx, b) },
	})
	return errors.Join(err, s.db.dropSlot(b.slot))
}

func (s *stage) drainOn(ctx context.Context, who subject, b backlog) (map[string]float64, error) {
	return s.on(ctx, who, func(ctx context.Context, t task) error { return s.db.copySlot(ctx, b, t.slot) },
		func(ctx context.Context, t task, r running) (map[string]float64, error) { return s.drain(ctx, t, r, b) })
}

// drain waits until the backlog is in the topic.
func (s *stage) drain(ctx context.Context, t task, r running, b backlog) (map[string]float64, error) {
	if err := s.kafka.awaitRecords(ctx, t.topic, b.events, r.alive); err != nil {
		return nil, err
	}
	now, err := measure(r.pid())
	if err != nil {
		return nil, err
	}
	began, used := r.began()
	a, err := s.kafka.arrival(ctx, t.topic)
	if err != nil {
		return nil, err
	}
	if n, err := s.kafka.records(ctx, t.topic); err != nil || n != b.events {
		return nil, errors.Join(err, fmt.Errorf("%d records of %d events: some came twice", n, b.events))
	}
	if err := s.verify(ctx, t.topic); err != nil {
		return nil, err
	}
	return map[string]float64{
		metricRate:  a.rate(b.events),
		metricCPU:   micros(now.cpu-used.cpu) / float64(b.events),
		metricPeak:  now.peak,
		metricFirst: millis(a.first.Sub(began)),
		metricLast:  millis(a.last.Sub(began)),
	}, nil
}

func micros(d time.Duration) float64 { return d.Seconds() * 1e6 }
func millis(d time.Duration) float64 { return d.Seconds() * 1e3 }
