package main

import (
	"context"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// idles measures how long each subject takes from the start of the process to the
// record of a waiting row, and the subject's cost when nothing happens.
func (s *stage) idles(ctx context.Context) error {
	return s.play(ctx, game{
		load:     "start and idle",
		subjects: []subject{s.ours(), s.tuned(poll10Name, forBoth, false), s.untuned(false)},
		take: func(ctx context.Context, who subject) (map[string]float64, error) {
			return s.on(ctx, who, s.slotWithRow, s.idleness)
		},
	})
}

// slotWithRow makes a slot with a single row to stream.
func (s *stage) slotWithRow(ctx context.Context, t task) error {
	if err := s.newSlot(ctx, t); err != nil {
		return err
	}
	_, err := s.db.Conn.Exec(ctx, `INSERT INTO outbox VALUES (gen_random_uuid(), 'order', '1', 'OrderPlaced', '{}')`)
	return err
}

func (s *stage) idleness(ctx context.Context, t task, r running) (map[string]float64, error) {
	if err := awaitRecords(ctx, s.kafka, t.topic, 1, r.Alive); err != nil {
		return nil, fmt.Errorf("wait for the first record: %w", err)
	}
	a, err := arrivalIn(ctx, s.kafka, t.topic)
	if err != nil {
		return nil, err
	}
	values, err := s.inIdleTime(ctx, r)
	if err != nil {
		return nil, err
	}
	began, _ := r.began()
	values[metricFirst] = millis(a.first.Sub(began))
	return values, nil
}

// inIdleTime is the cost of a subject without events, once settled.
func (s *stage) inIdleTime(ctx context.Context, r running) (map[string]float64, error) {
	if err := backoff.Sleep(ctx, s.settle); err != nil {
		return nil, err
	}
	before, err := r.Usage()
	if err != nil {
		return nil, err
	}
	if err := backoff.Sleep(ctx, s.idle); err != nil {
		return nil, err
	}
	after, err := r.Usage()
	if err != nil {
		return nil, err
	}
	return map[string]float64{
		metricIdleCPU: 100 * (after.CPU - before.CPU).Seconds() / s.idle.Seconds(),
		metricIdleRSS: after.RSS,
	}, nil
}
