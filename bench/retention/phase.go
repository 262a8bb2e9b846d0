package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// phase is what was seen in one part.
type phase struct {
	latency   []time.Duration // sorted
	mostBytes int64           // of the table with its indexes
	mostRows  int64
	mostDead  int64
}

func (p phase) percentile(n int) time.Duration {
	if len(p.latency) == 0 {
		return 0
	}
	return p.latency[len(p.latency)*n/100]
}

func (p phase) String() string {
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, table at most %.1f MiB, %d rows, %d dead", p.percentile(50).Seconds()*1e3,
		p.percentile(99).Seconds()*1e3, float64(p.mostBytes)/(1<<20), p.mostRows, p.mostDead)
}

// warmUp is what comes before anything counts.
const warmUp = 3 * time.Second

// phase plays one part. Its goroutines have ended when it returns.
func (w *world) phase(ctx context.Context, o options, after, length time.Duration) (p phase, err error) {
	err = w.connector(ctx, o, after, func() error {
		if err := w.play(ctx, o, warmUp); err != nil {
			return err
		}
		w.mu.Lock()
		w.latency = nil
		w.mu.Unlock()
		watching, stop := context.WithCancel(ctx)
		defer stop()
		var both errgroup.Group
		both.Go(func() error { return w.watch(watching, &p) })
		both.Go(func() error {
			defer stop()
			return w.play(ctx, o, length)
		})
		return both.Wait()
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	p.latency = slices.Sorted(slices.Values(w.latency))
	return p, err
}

// writers share the load.
const writers = 4

// play writes events at the rate, one in a transaction, and returns when all
// have arrived.
func (w *world) play(ctx context.Context, o options, length time.Duration) error {
	playing, stop := context.WithTimeout(ctx, length)
	defer stop()
	all, playing := errgroup.WithContext(playing)
	for n := range writers {
		all.Go(func() error { return w.write(ctx, playing, o, n) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	return w.settle(ctx)
}

// write commits until playing ends; ctx outlives that, so that no commit is cut
// off.
func (w *world) write(ctx, playing context.Context, o options, n int) error {
	conn, err := pgx.Connect(ctx, w.postgres.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	payload := map[string]string{"text": string(slices.Repeat([]byte("x"), o.payload))}
	tick := time.NewTicker(time.Duration(float64(writers) / o.perSecond() * float64(time.Second)))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-playing.Done():
			return nil
		case <-tick.C:
		}
		event := outbox.Event{AggregateType: "order", AggregateID: fmt.Sprint(n, "-", i%1000), Type: "Placed", Payload: payload}
		if event.ID, err = outbox.NewID(); err != nil {
			return err
		}
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := outbox.Write(ctx, tx, event)
			return err
		})
		if err != nil {
			return err
		}
		w.commit(event.ID)
	}
}

// settle waits until nothing is on its way.
func (w *world) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%d committed events do not arrive", w.waiting()))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for w.waiting() > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// watch notes how large the table gets, every second until ctx ends.
func (w *world) watch(ctx context.Context, p *phase) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var bytes, rows, dead int64
		err := w.sql.QueryRow(context.WithoutCancel(ctx), `SELECT pg_total_relation_size('outbox'), n_live_tup, n_dead_tup
			FROM pg_stat_user_tables WHERE relname = 'outbox'`).Scan(&bytes, &rows, &dead)
		if err != nil {
			return err
		}
		p.mostBytes, p.mostRows, p.mostDead = max(p.mostBytes, bytes), max(p.mostRows, rows), max(p.mostDead, dead)
	}
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	mid := len(values) / 2
	if len(values)%2 == 1 {
		return values[mid]
	}
	return (values[mid-1] + values[mid]) / 2
}
