package main

import (
	"context"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
)

// idles measures how long each subject takes from the start of its process to
// the record of a row that waits for it, and what it costs when nothing happens.
func (s *stage) idles(ctx context.Context) error {
	return s.play(ctx, game{
		load:     "start and idle",
		subjects: []subject{s.ours(), s.tuned(poll10Name, forBoth, false), s.untuned(false)},
		take: func(ctx context.Context, who subject) (map[string]float64, error) {
			return s.on(ctx, who, s.slotWithRow, s.idleness)
		},
	})
}

// slotWithRow makes a slot behind which there is one row.
func (s *stage) slotWithRow(ctx context.Context, t task) error {
	if err := s.newSlot(ctx, t); err != nil {
		return err
	}
	_, err := s.db.conn.Exec(ctx, `INSERT INTO outbox VALUES (gen_random_uuid(), 'order', '1', 'OrderPlaced', '{}')`)
	return err
}

func (s *stage) idleness(ctx context.Context, t task, r running) (map[string]float64, error) {
	if err := s.kafka.awaitRecords(ctx, t.topic, 1, r.alive); err != nil {
		return nil, fmt.Errorf("wait for the first record: %w", err)
	}
	a, err := s.kafka.arrival(ctx, t.topic)
	if err != nil {
		return nil, err
	}
	if err := backoff.Sleep(ctx, s.settle); err != nil {
		return nil, err
	}
	before, err := measure(r.pid())
	if err != nil {
		return nil, err
	}
	if err := backoff.Sleep(ctx, s.idle); err != nil {
		return nil, err
	}
	after, err := measure(r.pid())
	if err != nil {
		return nil, err
	}
	began, _ := r.began()
	return map[string]float64{
		metricFirst:   millis(a.first.Sub(began)),
		metricIdleCPU: 100 * (after.cpu - before.cpu).Seconds() / s.idle.Seconds(),
		metricIdleRSS: after.rss,
	}, nil
}
