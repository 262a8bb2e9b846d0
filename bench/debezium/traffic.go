package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// traffic is writers committing perTx rows at a time, at a rate in all.
type traffic struct {
	log     *journal
	payload string
	perTx   int           // events of a commit
	every   time.Duration // between two commits of a writer

	stop    context.CancelFunc
	writing sync.WaitGroup
	failed  chan error // capacity: all writers
}

// startTraffic starts the writers, as many for each database. They keep the rate, in
// events per second, until stopped.
func startTraffic(ctx context.Context, urls []string, payload, rate, perTx int, log *journal) *traffic {
	writers := writersFor(rate, perTx, len(urls))
	ctx, stop := context.WithCancel(ctx)
	t := &traffic{
		log: log, perTx: perTx, stop: stop, failed: make(chan error, writers),
		payload: fmt.Sprintf(`{"note": "%s"}`, strings.Repeat("0123456789abcdef", payload/16)),
		every:   time.Duration(writers*perTx) * time.Second / time.Duration(rate),
	}
	began := time.Now()
	for n := range writers {
		t.writing.Go(func() {
			if err := t.write(ctx, urls[n%len(urls)], began.Add(t.every*time.Duration(n)/time.Duration(writers))); err != nil {
				t.failed <- fmt.Errorf("writer %d: %w", n, err)
			}
		})
	}
	return t
}

// writersFor is how many writers keep a rate in all: a commit waits for the disk.
func writersFor(rate, perTx, databases int) int {
	writers := min(max(rate/perTx/60, 2), 64)
	return (writers + databases - 1) / databases * databases
}

// end stops the writers, and returns the error of a writer stopped before.
func (t *traffic) end() error {
	t.stop()
	t.writing.Wait()
	select {
	case err := <-t.failed:
		return err
	default:
		return nil
	}
}

// write commits at the writer's share of the rate. Delays are made up for.
func (t *traffic) write(ctx context.Context, url string, due time.Time) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for backoff.Sleep(ctx, time.Until(due)) == nil {
		events := make([]int64, t.perTx)
		ids, aggregates := make([]string, t.perTx), make([]string, t.perTx)
		for i := range events {
			number, ok := t.log.take()
			if !ok {
				return errors.New("the traffic lasts longer than it was to")
			}
			events[i], ids[i], aggregates[i] = number, t.log.id(number), fmt.Sprint(number%10_000)
		}
		// A begun transaction ends, so its outcome is known.
		_, err := conn.Exec(context.WithoutCancel(ctx),
			`INSERT INTO outbox SELECT id, 'order', aggregate, 'OrderPlaced', $3 FROM unnest($1::uuid[], $2::text[]) AS e (id, aggregate)`,
			ids, aggregates, t.payload)
		if err != nil {
			return err
		}
		t.log.committed(events)
		due = due.Add(t.every)
	}
	return nil
}
