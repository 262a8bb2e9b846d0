package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
)

const (
	writers = 4

	insert = `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, n)
		SELECT id, 'order', key, $3, $4, n FROM unnest($1::uuid[], $2::text[], $5::bigint[]) e(id, key, n)`
)

// traffic is the writers and the consumer at work.
type traffic struct {
	*stage
	consumer *kgo.Client
	commits  [writers][]commit // by writer, each its writer's until stopped
	done     sync.WaitGroup
	reading  sync.WaitGroup
	stop     context.CancelFunc // ends the writers
	leave    context.CancelFunc // ends the consumer
	failed   chan error         // capacity: all of them
}

// commit is a transaction a writer made.
type commit struct {
	at   int64 // when answered
	took time.Duration
}

// startTraffic starts the writers. They keep the pace until stopped.
func (s *stage) startTraffic(ctx context.Context) (*traffic, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.broker.Addr), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(time.Second))
	if err != nil {
		return nil, err
	}
	t := &traffic{stage: s, consumer: client, failed: make(chan error, writers+1)}
	writing, stop := context.WithCancel(ctx)
	reading, leave := context.WithCancel(ctx)
	t.stop, t.leave = stop, leave
	for n := range writers {
		t.done.Go(func() { t.failed <- t.write(writing, n) })
	}
	t.reading.Go(func() { t.failed <- t.consume(reading) })
	return t, nil
}

// err is why a writer or the consumer ended by itself, or nil.
func (t *traffic) err() error {
	select {
	case err := <-t.failed:
		return errors.Join(err, errors.New("the traffic has stopped"))
	default:
		return nil
	}
}

// close ends the traffic.
func (t *traffic) close() {
	t.stop()
	t.leave()
	t.done.Wait()
	t.reading.Wait()
	t.consumer.Close()
}

// write commits transactions at the writer's share of the rate, and makes up for
// delays.
func (t *traffic) write(ctx context.Context, number int) error {
	conn, err := pgx.Connect(ctx, t.db.URL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	random := rand.New(rand.NewPCG(1, uint64(number)))
	every := time.Duration(float64(time.Second) * float64(t.perTx*writers) / t.eventsPerSecond())
	due := time.Now().Add(every * time.Duration(number) / writers)
	for backoff.Sleep(ctx, time.Until(due)) == nil {
		// A begun transaction ends, so the outcome is known.
		if err := t.transaction(context.WithoutCancel(ctx), conn, random, number); err != nil {
			return fmt.Errorf("writer %d: %w", number, err)
		}
		due = due.Add(every)
	}
	return nil
}

func (t *traffic) transaction(ctx context.Context, conn *pgx.Conn, random *rand.Rand, number int) error {
	j := t.log
	first := j.next.Add(int64(t.perTx)) - int64(t.perTx)
	if first+int64(t.perTx) > int64(len(j.acked)) {
		return errors.New("it took too long")
	}
	tx := checker.Transaction{Outcome: checker.Committed}
	var ids, keyed []string
	var numbers []int64
	for n := first; n < first+int64(t.perTx); n++ {
		key := fmt.Sprint(random.IntN(keys/writers)*writers + number)
		tx.Events = append(tx.Events, j.event(n, key))
		ids, keyed, numbers = append(ids, eventID(n)), append(keyed, key), append(numbers, n)
	}
	tx.Began = j.ledger.Now()
	began := time.Now()
	if _, err := conn.Exec(ctx, insert, ids, keyed, eventType, j.payload, numbers); err != nil {
		return err
	}
	now := j.now()
	t.commits[number] = append(t.commits[number], commit{now, time.Since(began)})
	for _, n := range numbers {
		j.acked[n].Store(now)
	}
	j.ledger.Add(tx)
	return nil
}

// consume notes arriving events until ctx ends.
func (t *traffic) consume(ctx context.Context) error {
	for {
		fetches := t.consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := t.log.receive(fetches.Records()); err != nil {
			return err
		}
	}
}

func (j *journal) receive(records []*kgo.Record) error {
	now := j.now()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, kr := range records {
		rec := checker.Record{Topic: topic, Partition: kr.Partition, Offset: kr.Offset, Timestamp: kr.Timestamp, Key: string(kr.Key), Value: j.payload}
		if string(kr.Value) != j.payload { // nearly always equal, without a copy
			rec.Value = string(kr.Value)
		}
		for _, h := range kr.Headers {
			rec.Headers = append(rec.Headers, checker.Header{Key: h.Key, Value: string(h.Value)})
		}
		j.records = append(j.records, rec)
		if len(rec.Headers) == 0 {
			continue // the checker will tell
		}
		n, err := eventNumber(rec.Headers[0].Value)
		if err != nil || n >= int64(len(j.received)) {
			return fmt.Errorf("record %s[%d]@%d: %w", rec.Topic, rec.Partition, rec.Offset, err)
		}
		j.received[n].CompareAndSwap(0, now)
	}
	return nil
}
