package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
)

// measurement measures a subject once.
type measurement func(ctx context.Context, who subject) (map[string]float64, error)

// game is a comparison of subjects.
type game struct {
	load     string
	subjects []subject
	take     measurement
	// warmUp is done before the first round by subjects staying warm.
	warmUp func(ctx context.Context, who subject) error
	// limit is measured beside the subjects, if any.
	limit []figures.Turn
}

// play has the subjects take turns for all rounds.
func (s *stage) play(ctx context.Context, g game) (err error) {
	turns := g.limit
	for _, who := range g.subjects {
		defer func() { err = errors.Join(err, who.close()) }()
		s.describe(g.load, who)
		if who.staysWarm() {
			fmt.Printf("%s: warming up %s\n", g.load, who.name())
			if failed := g.warmUp(ctx, who); failed != nil {
				m := figures.Measurement{Load: g.load, Subject: who.name()}
				if err := s.results.Note(ctx, os.Stdout, m, fmt.Errorf("warm up: %w", failed)); err != nil {
					return err
				}
				continue
			}
		}
		turns = append(turns, figures.Turn{Subject: who.name(), Take: func(ctx context.Context) (map[string]float64, error) { return g.take(ctx, who) }})
	}
	return s.results.Play(ctx, os.Stdout, g.load, s.rounds, turns)
}

// on starts the subject on a separate task, measures and stops it. prepare
// makes the slot.
func (s *stage) on(ctx context.Context, who subject, prepare func(context.Context, task) error,
	take func(context.Context, task, running) (map[string]float64, error),
) (values map[string]float64, err error) {
	t, err := s.nextTask(ctx)
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, t); err != nil {
		return nil, fmt.Errorf("make slot %s: %w", t.slot, err)
	}
	defer func() { err = errors.Join(err, s.finish(t)) }()
	r, err := who.start(ctx, t)
	if err != nil {
		return nil, err
	}
	values, err = take(ctx, t, r)
	return values, errors.Join(r.Explain(err), r.Stop())
}
