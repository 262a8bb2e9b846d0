package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// perTx is how many events a transaction has.
const perTx = 10

// prepare makes the outbox, and a function that inserts. Every so many events, from a number
// on, one is bad: its payload is no JSON. Bad events have 500 keys of their own.
func (s *stage) prepare(ctx context.Context) error {
	return s.DB.Exec(ctx,
		`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)`,
		`CREATE PUBLICATION `+rig.Publication+` FOR TABLE outbox WITH (publish = 'insert')`,
		`CREATE FUNCTION put(first int, n int, every int) RETURNS void LANGUAGE sql AS $$
			INSERT INTO outbox SELECT gen_random_uuid(), 'order',
				CASE WHEN every > 0 AND e % every = 0 THEN 'bad' || (e / every) % 500 ELSE (random() * 10000)::int::text END, 'Placed',
				CASE WHEN every > 0 AND e % every = 0 THEN '{bad' ELSE '{"order": ' || e || ', "note": "' || repeat(md5(e::text), 6) || '"}' END
			FROM generate_series(first, first + n - 1) e $$`,
		`CREATE PROCEDURE fill(rows int, per_tx int, every int) LANGUAGE plpgsql AS $$
			BEGIN
				FOR t IN 0..rows / per_tx - 1 LOOP
					PERFORM put(t * per_tx, per_tx, every);
					COMMIT;
				END LOOP;
			END $$`)
}

// open makes a slot and a topic, and returns the settings of a connector.
func (s *stage) open(ctx context.Context) (slot, topic string, settings []string, err error) {
	s.played++
	slot, topic = fmt.Sprint("bench_", s.played), fmt.Sprint("bench.", s.played)
	if err := s.DB.CreateSlot(ctx, slot); err != nil {
		return "", "", nil, err
	}
	if err := s.Broker.CreateTopic(ctx, topic, 3); err != nil {
		return "", "", nil, err
	}
	settings = append(rig.Wiring(s.DB.URL, slot, s.Broker.Addr, topic), "event.payload_format=json_expanded",
		"errors.on_bad_event=quarantine", fmt.Sprint("errors.quarantine_limit=", max(10_000, s.rows/s.every)), "sink.kafka.delivery="+s.delivery)
	if s.delivery == sink.DeliveryExactlyOnce { // which refuses a slot without a checkpoint
		err = s.Connector.Do(ctx, []string{"adopt", "--yes"}, settings...)
	}
	return slot, topic, settings, err
}

// drain is the throughput of a backlog, from the connector's first hold of the slot until all
// is confirmed.
func (s *stage) drain(ctx context.Context, every int) (rate float64, err error) {
	slot, _, settings, err := s.open(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.DB.Exec(ctx, `SET synchronous_commit = off`, fmt.Sprintf(`CALL fill(%d, %d, %d)`, s.rows, perTx, every), `RESET synchronous_commit`); err != nil {
		return 0, err
	}
	var end string
	if err := s.DB.Conn.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&end); err != nil {
		return 0, err
	}
	if err := s.DB.Exec(ctx, `CHECKPOINT`); err != nil {
		return 0, err
	}
	program, err := s.Connector.Run(settings...)
	if err != nil {
		return 0, err
	}
	if err := s.DB.AwaitActive(ctx, slot, true, program.Alive); err != nil {
		return 0, errors.Join(err, program.Process.Stop())
	}
	began := time.Now()
	if err := s.DB.AwaitConfirmed(ctx, slot, end, program.Alive); err != nil {
		return 0, errors.Join(err, program.Process.Stop())
	}
	took := time.Since(began)
	if _, err := program.Stop(); err != nil {
		return 0, err
	}
	return float64(s.rows) / took.Seconds(), s.DB.DropSlot(slot)
}

// warmUp is left out of the steady load's figures.
const warmUp = 3 * time.Second

// steady is the 99th percentile of the time from the commit of an event with a good key to
// its arrival at a consumer, in milliseconds.
func (s *stage) steady(ctx context.Context, every int) (p99 float64, err error) {
	slot, topic, settings, err := s.open(ctx)
	if err != nil {
		return 0, err
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(s.Broker.Addr), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return 0, err
	}
	defer consumer.Close()
	program, err := s.Connector.Run(settings...)
	if err != nil {
		return 0, err
	}
	if err := s.DB.AwaitActive(ctx, slot, true, program.Alive); err != nil {
		return 0, errors.Join(err, program.Process.Stop())
	}
	reading, stop := context.WithCancel(ctx)
	taken := make(chan []float64)
	from := time.Now().Add(warmUp)
	go func() { taken <- latencies(reading, consumer, from) }()
	writeErr := s.write(ctx, every)
	_ = backoff.Sleep(ctx, time.Second) // the last ones arrive
	stop()
	times := <-taken
	_, stopErr := program.Stop()
	if err := errors.Join(writeErr, stopErr); err != nil {
		return 0, err
	}
	if len(times) < 100 {
		return 0, fmt.Errorf("only %d events arrived", len(times))
	}
	slices.Sort(times)
	return figures.Percentile(times, 99), s.DB.DropSlot(slot)
}

// write commits transactions at the rate.
func (s *stage) write(ctx context.Context, every int) error {
	tick := time.NewTicker(time.Second * perTx / time.Duration(s.rate))
	defer tick.Stop()
	until := time.Now().Add(warmUp + s.load)
	for first := 0; time.Now().Before(until); first += perTx {
		if _, err := s.DB.Conn.Exec(ctx, `SELECT put($1, $2, $3)`, first, perTx, every); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// latencies are the times, in milliseconds, of events committed from a time on, until ctx
// ends.
func latencies(ctx context.Context, consumer *kgo.Client, from time.Time) (times []float64) {
	for ctx.Err() == nil {
		fetches := consumer.PollFetches(ctx)
		now := time.Now()
		fetches.EachRecord(func(r *kgo.Record) {
			if strings.HasPrefix(string(r.Key), "bad") {
				return
			}
			for _, h := range r.Headers {
				if h.Key != "cdc-time" {
					continue
				}
				if at, err := time.Parse(time.RFC3339Nano, string(h.Value)); err == nil && at.After(from) {
					times = append(times, float64(now.Sub(at))/float64(time.Millisecond))
				}
			}
		})
	}
	return times
}
