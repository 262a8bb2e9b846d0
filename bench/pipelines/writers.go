package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// writers commit a row at a time, until the end: as many writers for a single pipeline as
// for many.
type writers struct {
	stop    context.CancelFunc
	running *errgroup.Group
}

func startWriters(ctx context.Context, s *stage, of subject) (*writers, error) {
	conns := make([]*pgx.Conn, s.pipelines)
	var opening errgroup.Group
	opening.SetLimit(8)
	for n := range conns {
		opening.Go(func() (err error) {
			conns[n], err = pgx.Connect(ctx, s.made[n%of.pipelines].URL)
			return err
		})
	}
	if err := opening.Wait(); err != nil {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close(ctx)
			}
		}
		return nil, fmt.Errorf("open the writers' connections: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	w := &writers{stop: stop, running: new(errgroup.Group)}
	every, began := time.Second/time.Duration(s.rate), time.Now()
	for n, conn := range conns {
		w.running.Go(func() error {
			defer func() { _ = conn.Close(context.Background()) }()
			return write(ctx, conn, of.table(), every, began.Add(every*time.Duration(n)/time.Duration(len(conns))))
		})
	}
	return w, nil
}

// write commits a row in each interval. Delays are made up for.
func write(ctx context.Context, conn *pgx.Conn, table string, every time.Duration, due time.Time) error {
	for ; backoff.Sleep(ctx, time.Until(due)) == nil; due = due.Add(every) {
		// A begun transaction ends, and the connector's stop drains it.
		if _, err := conn.Exec(context.WithoutCancel(ctx),
			`INSERT INTO `+table+` (id, aggregatetype, aggregateid, type, payload)
				SELECT gen_random_uuid(), 'order', (random() * 10000)::int::text, 'OrderPlaced', payload(1, 490)`); err != nil {
			return err
		}
	}
	return nil
}

// end stops and joins the writers.
func (w *writers) end() error {
	w.stop()
	return w.running.Wait()
}
