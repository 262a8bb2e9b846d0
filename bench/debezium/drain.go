package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// drains measures how fast each subject empties a backlog.
func (s *stage) drains(ctx context.Context) error {
	return s.drainEach(ctx, s.load(), "", s.drain, s.limit, s.ours(), s.tuned(warmName, forThroughput, true), s.tuned(coldName, forThroughput, false))
}

// load is the backlog.
func (s *stage) load() rig.Load { return rig.Load{Rows: s.rows, PerTx: s.perTx, Payload: s.payload} }

// drainEach commits a backlog, and has each subject empty it, with a separate
// slot at the backlog's beginning and a separate topic. where is for the report.
// measure waits until the backlog is in the topic; limit, unless nil, is taken
// beside the subjects.
func (s *stage) drainEach(ctx context.Context, rows rig.Load, where string,
	measure func(context.Context, task, running, rig.Backlog) (map[string]float64, error),
	limit func(context.Context, rig.Backlog) (map[string]float64, error), subjects ...subject,
) error {
	g := game{load: "drain of " + rows.String() + where, subjects: subjects}
	fmt.Println("committing the backlog:", g.load)
	b, err := s.db.Fill(ctx, "bench_backlog", rows)
	if err != nil {
		return fmt.Errorf("fill the backlog: %w", err)
	}
	g.take = func(ctx context.Context, who subject) (map[string]float64, error) {
		return s.on(ctx, who, func(ctx context.Context, t task) error { return s.db.CopySlot(ctx, b.Slot, t.slot) },
			func(ctx context.Context, t task, r running) (map[string]float64, error) { return measure(ctx, t, r, b) })
	}
	g.warmUp = func(ctx context.Context, who subject) error {
		for range s.warmDrains {
			if _, err := g.take(ctx, who); err != nil {
				return err
			}
		}
		return nil
	}
	if limit != nil {
		g.limit = []figures.Turn{{Subject: limitName, Take: func(ctx context.Context) (map[string]float64, error) { return limit(ctx, b) }}}
	}
	return errors.Join(s.play(ctx, g), s.db.DropSlot(b.Slot))
}

// drain waits until the backlog is in the topic, and compares records with their rows.
func (s *stage) drain(ctx context.Context, t task, r running, b rig.Backlog) (map[string]float64, error) {
	values, err := s.drained(ctx, t, r, b)
	if err == nil {
		err = s.verify(ctx, t.topic)
	}
	return values, err
}

// drained is drain without the comparison.
func (s *stage) drained(ctx context.Context, t task, r running, b rig.Backlog) (map[string]float64, error) {
	events := int64(b.Events())
	if err := awaitRecords(ctx, s.kafka, t.topic, events, r.Alive); err != nil {
		return nil, err
	}
	now, err := r.Usage()
	if err != nil {
		return nil, err
	}
	began, used := r.began()
	a, err := arrivalIn(ctx, s.kafka, t.topic)
	if err != nil {
		return nil, err
	}
	if n, err := s.kafka.Records(ctx, t.topic); err != nil || n != events {
		return nil, errors.Join(err, fmt.Errorf("%d records of %d events: some came twice", n, events))
	}
	return map[string]float64{
		metricRate:  a.rate(events),
		metricCPU:   micros(now.CPU-used.CPU) / float64(events),
		metricPeak:  now.Peak,
		metricFirst: millis(a.first.Sub(began)),
		metricLast:  millis(a.last.Sub(began)),
	}, nil
}

const limitName = "pg_recvlogical"

// limit is pg_recvlogical reading the backlog and throwing everything away, as the
// fastest reader of a single walsender.
func (s *stage) limit(ctx context.Context, b rig.Backlog) (map[string]float64, error) {
	const slot = "bench_limit"
	if err := s.db.CopySlot(ctx, b.Slot, slot); err != nil {
		return nil, err
	}
	reader, err := rig.Recvlogical(s.road().url, slot, b.End, rig.Publication, false)
	if err != nil {
		return nil, err
	}
	took, err := s.db.Read(ctx, reader)
	if err := errors.Join(err, s.db.DropSlot(slot)); err != nil {
		return nil, err
	}
	return map[string]float64{
		metricRate: float64(b.Events()) / took[0].Took.Seconds(),
		metricCPU:  micros(took[0].Reader.CPU) / float64(b.Events()),
		metricPeak: took[0].Reader.Peak,
		metricLast: millis(took[0].Took),
	}, nil
}

func micros(d time.Duration) float64 { return d.Seconds() * 1e6 }
func millis(d time.Duration) float64 { return d.Seconds() * 1e3 }
