package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
)

// sample is the time of a call of each phase in a round.
type sample [phases]time.Duration

// added is the additional time of a message handled for the first time.
func (s sample) added() time.Duration { return s[claim] + s[complete] - s[work] }

// measured is a subject with the samples.
type measured struct {
	subject
	workers int
	samples []sample
}

// measure gives each subject the messages of each round, after an uncounted round.
func measure(ctx context.Context, subjects []subject, o options, workers int) ([]measured, error) {
	all := make([]measured, len(subjects))
	for n := range o.rounds + 1 {
		for i, s := range subjects {
			taken, err := round(ctx, s, o.messages, workers, n%2 == 0)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d with %d workers: %w", s.name, n, workers, err)
			}
			all[i].subject, all[i].workers = s, workers
			if n > 0 {
				all[i].samples = append(all[i].samples, taken)
			}
		}
	}
	return all, nil
}

// round times each phase of a subject on new messages; the phases for comparison come
// first or last.
func round(ctx context.Context, s subject, n, workers int, compareFirst bool) (taken sample, err error) {
	messages, err := newMessages("bench", n)
	if err != nil {
		return taken, err
	}
	order := []phase{claim, complete, duplicate, trusted, lookUp}
	if compareFirst {
		order = append([]phase{prepare, bare, work}, order...)
	} else {
		order = append(append([]phase{prepare}, order...), bare, work)
	}
	for _, p := range order {
		if s.calls[p] == nil {
			continue
		}
		if taken[p], err = timed(ctx, messages, workers, s.calls[p]); err != nil {
			return taken, err
		}
	}
	return taken, nil
}

// timed makes the call for each message and returns the time per call. The workers'
// goroutines have ended then.
func timed(ctx context.Context, messages []message, workers int, do call) (time.Duration, error) {
	var group errgroup.Group
	began := time.Now()
	for w := range workers {
		group.Go(func() error {
			for i := w; i < len(messages); i += workers {
				if err := do(ctx, &messages[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	busy := min(workers, len(messages))
	return time.Since(began) * time.Duration(busy) / time.Duration(len(messages)), err
}

// median is the median of f over the samples.
func (m measured) median(f func(sample) float64) float64 {
	values := make([]float64, len(m.samples))
	for i, s := range m.samples {
		values[i] = f(s)
	}
	return figures.Median(values)
}
