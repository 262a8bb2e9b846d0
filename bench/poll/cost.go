package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// counter is a sink counting events, in no time.
type counter struct{ events atomic.Int64 }

func (c *counter) Deliver(_ context.Context, events []*transform.Event, _ sink.Reject) error {
	c.events.Add(int64(len(events)))
	return nil
}

func (c *counter) DeadLetter(_ context.Context, ev *transform.Event, bad *transform.BadEvent) error {
	return fmt.Errorf("bad event %s: %w", ev.ID, bad)
}

func (c *counter) Close() {}

// cost is the cost of a table's polls.
type cost struct {
	took   time.Duration // from the commit of the new rows until all are marked
	blocks float64       // of table and indexes, for each new row
	idle   float64       // blocks for a poll without new rows
}

// compareSizes measures both tables in turn.
func compareSizes(ctx context.Context, s *server, o options) error {
	tables := []struct {
		name string
		rows int
	}{{"outbox_small", o.small}, {"outbox_large", o.rows}}
	for _, t := range tables {
		began := time.Now()
		if err := s.createOutbox(ctx, t.name); err != nil {
			return err
		}
		const chunk = 500_000 // a transaction
		for left := t.rows; left > 0; left -= chunk {
			if err := s.insert(ctx, t.name, min(left, chunk), o.payload, true); err != nil {
				return err
			}
		}
		if err := s.Exec(ctx, "VACUUM ANALYZE "+t.name); err != nil {
			return err
		}
		fmt.Printf("%s: %d published rows of %d+120 bytes, made in %s\n", t.name, t.rows, o.payload, time.Since(began).Round(time.Second))
	}
	if err := s.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}

	results := map[string][]cost{}
	for n := range o.rounds {
		order := slices.Clone(tables)
		if n%2 == 1 {
			slices.Reverse(order)
		}
		for _, t := range order {
			c, err := measureTable(ctx, s, o, t.name)
			if err != nil {
				return err
			}
			results[t.name] = append(results[t.name], c)
			fmt.Printf("round %d: %s: %s\n", n+1, t.name, c)
		}
	}
	small, large := middle(results["outbox_small"]), middle(results["outbox_large"])
	fmt.Printf("median of %d: %d new rows of %d: %s\n", o.rounds, o.fresh, o.small, small)
	fmt.Printf("median of %d: %d new rows of %d: %s\n", o.rounds, o.fresh, o.rows, large)
	fmt.Printf("large to small: time %.2f, blocks per row %.2f, blocks per idle poll %.2f\n",
		large.took.Seconds()/small.took.Seconds(), large.blocks/small.blocks, large.idle/small.idle)
	return nil
}

func (c cost) String() string {
	return fmt.Sprintf("published and marked in %s, %.1f blocks per new row, %.1f blocks per idle poll",
		c.took.Round(100*time.Microsecond), c.blocks, c.idle)
}

func middle(cs []cost) cost {
	pick := func(of func(cost) float64) float64 {
		values := make([]float64, len(cs))
		for i, c := range cs {
			values[i] = of(c)
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	return cost{
		took:   time.Duration(pick(func(c cost) float64 { return float64(c.took) })),
		blocks: pick(func(c cost) float64 { return c.blocks }),
		idle:   pick(func(c cost) float64 { return c.idle }),
	}
}

// measureTable lets three instances in turn poll while nothing is new, publish waiting
// rows, and publish arriving rows. Instances end before blocks are counted: sessions
// report their statistics at their end at the latest.
func measureTable(ctx context.Context, s *server, o options, table string) (c cost, err error) {
	const idlePolls = 200
	before, err := s.blocks(ctx, table)
	if err != nil {
		return c, err
	}
	if err := s.poll(ctx, o, table, func(*counter) error { return backoff.Sleep(ctx, idlePolls*time.Millisecond) }); err != nil {
		return c, err
	}
	after, err := s.blocks(ctx, table)
	if err != nil {
		return c, err
	}
	c.idle = float64(after.blocks-before.blocks) / float64(after.scans-before.scans)

	if err := s.insert(ctx, table, o.fresh, o.payload, false); err != nil {
		return c, err
	}
	if before, err = s.blocks(ctx, table); err != nil {
		return c, err
	}
	if err := s.poll(ctx, o, table, func(out *counter) error { return out.await(ctx, o.fresh) }); err != nil {
		return c, err
	}
	if after, err = s.blocks(ctx, table); err != nil {
		return c, err
	}
	c.blocks = float64(after.blocks-before.blocks) / float64(o.fresh)

	err = s.poll(ctx, o, table, func(out *counter) error {
		if err := backoff.Sleep(ctx, 100*time.Millisecond); err != nil { // connected by then, with the table known
			return err
		}
		if err := s.insert(ctx, table, o.fresh, o.payload, false); err != nil {
			return err
		}
		began := time.Now()
		if err := out.await(ctx, o.fresh); err != nil {
			return err
		}
		if err := s.marked(ctx, table); err != nil {
			return err
		}
		c.took = time.Since(began)
		return nil
	})
	if err != nil {
		return c, err
	}
	return c, s.Exec(ctx, "VACUUM "+table)
}

// await returns once n events were delivered.
func (c *counter) await(ctx context.Context, n int) error {
	return rig.Await(ctx, time.Millisecond, func() (bool, error) { return c.events.Load() >= int64(n), nil })
}

// marked returns once all rows of the table are.
func (s *server) marked(ctx context.Context, table string) error {
	return rig.Await(ctx, time.Millisecond, func() (done bool, err error) {
		err = s.Conn.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM "+table+" WHERE NOT published)").Scan(&done)
		return done, err
	})
}

// poll runs an instance while fn does.
func (s *server) poll(ctx context.Context, o options, table string, fn func(*counter) error) error {
	name, err := pg.ParseTable(table)
	if err != nil {
		return err
	}
	opts := poll.DefaultOptions()
	opts.Notify, opts.BatchSize = "", o.fresh
	opts.Interval, opts.MaxInterval = time.Millisecond, time.Millisecond
	event := transform.DefaultEvent()
	event.PositionHeaders = false
	m := metrics.New("", "").Pipeline("")
	out := &counter{}
	instance, err := poll.New(poll.Parts{
		Options: opts, URL: s.URL, Tables: []pg.Table{name},
		Event: event, Route: transform.DefaultRoute(), OnBadEvent: transform.BadEventStop,
		DrainTimeout: 20 * time.Second, MaxBufferedBytes: sink.DefaultOptions().MaxBufferedBytes,
		Open:    func() (sink.Sink, error) { return out, nil },
		Metrics: m, Kafka: delivery.NewDownstream(m), Log: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	polling, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- instance.Run(polling) }()
	err = fn(out)
	stop()
	return errors.Join(err, <-done, s.alone(ctx))
}

// alone returns once the instance's sessions have ended.
func (s *server) alone(ctx context.Context) error {
	return rig.Await(ctx, 10*time.Millisecond, func() (alone bool, err error) {
		err = s.Conn.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'cdc-outbox')`).Scan(&alone)
		return alone, err
	})
}

// usage is of the statistics of a table: blocks of table and indexes asked for, and
// scans of the index of unpublished rows.
type usage struct{ blocks, scans int64 }

func (s *server) blocks(ctx context.Context, table string) (u usage, err error) {
	// The session's own work is counted too, hence told now.
	if err := s.Exec(ctx, "SELECT pg_stat_force_next_flush()", "SELECT pg_stat_clear_snapshot()"); err != nil {
		return u, err
	}
	err = s.Conn.QueryRow(ctx, `
		SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read,
		       (SELECT idx_scan FROM pg_stat_user_indexes i WHERE i.relid = t.relid AND indexrelname LIKE '%seq_idx')
		  FROM pg_statio_user_tables t WHERE relname = $1`, table).Scan(&u.blocks, &u.scans)
	return u, err
}
