package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// The backlog a consumer works off.
const (
	backlogTopic      = "backlog"
	backlogPartitions = 8
	backlogKeys       = 1000
)

// backlog is a full topic.
type backlog struct {
	records int
	brokers []string
	runs    int
}

// contender works the backlog off, as the group.
type contender struct {
	name string
	run  func(ctx context.Context, group string) error
}

// measureBacklogs prints how fast consumers work off a backlog with the stores
// named: a hand-written loop, and the library.
func measureBacklogs(ctx context.Context, o options, out io.Writer) error {
	for _, of := range []struct {
		store   string
		records int
		measure func(ctx context.Context, b *backlog, rounds int, out io.Writer) error
	}{
		{"redis", o.backlog, measureRedisBacklog},
		{"postgres", o.backlog, measurePostgresBacklog},
	} {
		if !slices.Contains(o.stores, of.store) {
			continue
		}
		b, closeTopic, err := fillBacklog(ctx, of.records)
		if err != nil {
			return err
		}
		err = of.measure(ctx, b, o.backlogRounds, out)
		closeTopic()
		if err != nil {
			return fmt.Errorf("backlog with %s: %w", of.store, err)
		}
	}
	return nil
}

// race has all contenders take part in each round, and prints how fast they are
// beside the first.
func (b *backlog) race(ctx context.Context, contenders []contender, rounds int, out io.Writer) error {
	rates := make([][]float64, len(contenders))
	for round := range rounds + 1 {
		for i := range contenders {
			c := (i + round) % len(contenders) // nobody is always first
			b.runs++
			begun := time.Now()
			if err := contenders[c].run(ctx, fmt.Sprintf("group-%d", b.runs)); err != nil {
				return fmt.Errorf("%s: %w", contenders[c].name, err)
			}
			if rate := float64(b.records) / time.Since(begun).Seconds(); round > 0 { // the first is to warm up
				rates[c] = append(rates[c], rate)
			}
		}
	}
	fmt.Fprintln(out, "\n| consumer | messages/s | of the bare loop |")
	fmt.Fprintln(out, "|---|---|---|")
	for c := range contenders {
		var ratios []float64
		for r := range rates[c] {
			ratios = append(ratios, rates[c][r]/rates[0][r])
		}
		fmt.Fprintf(out, "| %s | %s | %.2f |\n", contenders[c].name, thousands(figures.Median(rates[c])), figures.Median(ratios))
	}
	return nil
}

// title introduces the table below.
func (b *backlog) title(out io.Writer, handler string, rounds int) {
	fmt.Fprintf(out, "\nA backlog of %s records in %d partitions, a handler that %s, %d rounds:\n",
		thousands(float64(b.records)), backlogPartitions, handler, rounds)
}

func fillBacklog(ctx context.Context, records int) (*backlog, func(), error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(backlogPartitions, backlogTopic))
	if err != nil {
		return nil, nil, err
	}
	b := &backlog{records: records, brokers: cluster.ListenAddrs()}
	if err := b.fill(ctx); err != nil {
		cluster.Close()
		return nil, nil, err
	}
	return b, cluster.Close, nil
}

func (b *backlog) fill(ctx context.Context) error {
	producer, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer producer.Close()
	var failed atomic.Pointer[error]
	for n := range b.records {
		id := strconv.Itoa(n)
		producer.Produce(ctx, &kgo.Record{
			Topic: backlogTopic, Partition: int32(n % backlogPartitions), Key: []byte(strconv.Itoa(n % backlogKeys)),
			Value: []byte("a payload of some size, as small events have it, order " + id), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}},
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := producer.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// bare is a hand-written loop handling each record by once: a poll, the
// partitions beside each other, a commit.
func (b *backlog) bare(ctx context.Context, group string, once func(ctx context.Context, scope, id string) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(backlogTopic), kgo.DisableAutoCommit())
	if err != nil {
		return err
	}
	defer client.Close()
	for handled := 0; handled < b.records; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		var failed atomic.Pointer[error]
		var partitions sync.WaitGroup
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			partitions.Go(func() {
				for _, r := range p.Records {
					if err := once(ctx, group, recordID(r)); err != nil {
						failed.Store(&err)
						return
					}
				}
			})
		})
		partitions.Wait()
		if err := failed.Load(); err != nil {
			return *err
		}
		if err := client.CommitRecords(ctx, fetches.Records()...); err != nil {
			return err
		}
		handled += fetches.NumRecords()
	}
	return nil
}

func recordID(r *kgo.Record) string { return string(r.Headers[0].Value) }

// library is the consumer around the store, with the defaults but for c.
func (b *backlog) library(ctx context.Context, group string, store storage.Store, c consumer.Config, handle consumer.Handler) error {
	processor, err := idempotency.New(idempotency.Options{Store: store, MaxAttempts: -1})
	if err != nil {
		return err
	}
	defer processor.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var handled atomic.Int64
	c.Brokers, c.Group, c.Topics = b.brokers, group, []string{backlogTopic}
	c.Once = consumer.Once{Runner: processor}
	c.Logger = slog.New(slog.DiscardHandler)
	c.Handler = func(ctx context.Context, r *kgo.Record) error {
		err := handle(ctx, r)
		if err == nil && handled.Add(1) == int64(b.records) {
			stop()
		}
		return err
	}
	member, err := consumer.New(c)
	if err != nil {
		return err
	}
	return member.Run(ctx)
}

// orders are the library with the defaults in both orders, and with more at
// once.
func (b *backlog) orders(store storage.Store, handle consumer.Handler, more ...int) []contender {
	all := []contender{
		b.contender("library, partition order", store, consumer.Config{}, handle),
		b.contender("library, key order", store, consumer.Config{KeyOrder: true}, handle),
	}
	for _, n := range more {
		name := fmt.Sprintf("library, key order, Concurrency %d", n)
		all = append(all, b.contender(name, store, consumer.Config{KeyOrder: true, Concurrency: n}, handle))
	}
	return all
}

func (b *backlog) contender(name string, store storage.Store, c consumer.Config, handle consumer.Handler) contender {
	return contender{name, func(ctx context.Context, group string) error { return b.library(ctx, group, store, c, handle) }}
}
