package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/redisserver"
)

// The backlog that a consumer works off.
const (
	backlogTopic      = "backlog"
	backlogPartitions = 8
	backlogKeys       = 1000
)

// The least that gives the guarantee of one owner at a time: two scripts per
// message, a claim by an owner for a while, and a completion by the same owner.
var (
	bareClaim = goredis.NewScript(`
		if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 'claimed' end
		return redis.call('GET', KEYS[1])`)
	bareComplete = goredis.NewScript(`
		if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
		redis.call('SET', KEYS[1], 'done', 'PX', ARGV[2])
		return 1`)
)

// backlog is a topic that is full, and a Redis.
type backlog struct {
	records int
	brokers []string
	redis   *goredis.Client
	runs    int
}

// contender works the backlog off, as a group of that name.
type contender struct {
	name string
	run  func(ctx context.Context, group string) error
}

// measureBacklog prints how fast consumers with a handler that does nothing work
// off a backlog: a bare poll loop with the two scripts, and the library with its
// defaults, in both orders. All take part in each round.
func measureBacklog(ctx context.Context, records, rounds int, out io.Writer) error {
	b, closeAll, err := fillBacklog(ctx, records)
	if err != nil {
		return err
	}
	defer closeAll()
	contenders := []contender{
		{"bare loop, two scripts a message", b.bare},
		{"library, partition order", func(ctx context.Context, group string) error { return b.library(ctx, group, false) }},
		{"library, key order", func(ctx context.Context, group string) error { return b.library(ctx, group, true) }},
	}
	rates := make([][]float64, len(contenders))
	for round := range rounds + 1 {
		for i := range contenders {
			c := (i + round) % len(contenders) // nobody is always first
			b.runs++
			begun := time.Now()
			if err := contenders[c].run(ctx, fmt.Sprintf("group-%d", b.runs)); err != nil {
				return fmt.Errorf("%s: %w", contenders[c].name, err)
			}
			if rate := float64(records) / time.Since(begun).Seconds(); round > 0 { // the first is to warm up
				rates[c] = append(rates[c], rate)
			}
		}
	}
	fmt.Fprintf(out, "\nA backlog of %s records in %d partitions, a handler that does nothing, %d rounds:\n\n", thousands(float64(records)), backlogPartitions, rounds)
	fmt.Fprintln(out, "| consumer | messages/s | of the bare loop |")
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

func fillBacklog(ctx context.Context, records int) (*backlog, func(), error) {
	var s stage
	program, err := redisserver.Ensure(ctx, os.Stderr)
	if err != nil {
		return nil, nil, err
	}
	server, err := redisserver.Start(ctx, redisserver.Options{
		Program: program, Settings: map[string]string{"appendonly": "yes", "appendfsync": "everysec"},
	})
	if err != nil {
		return nil, nil, err
	}
	s.onClose(func() { _ = server.Close() })
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	s.onClose(func() { _ = client.Close() })
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(backlogPartitions, backlogTopic))
	if err != nil {
		s.close()
		return nil, nil, err
	}
	s.onClose(cluster.Close)
	b := &backlog{records: records, brokers: cluster.ListenAddrs(), redis: client}
	if err := b.fill(ctx); err != nil {
		s.close()
		return nil, nil, err
	}
	return b, s.close, nil
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

// bare is a hand-written loop: a poll, the partitions beside each other, a
// commit.
func (b *backlog) bare(ctx context.Context, group string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(backlogTopic), kgo.DisableAutoCommit())
	if err != nil {
		return err
	}
	defer client.Close()
	for handled := 0; handled < b.records; {
		fetches := client.PollRecords(ctx, 10_000)
		if err := fetches.Err(); err != nil {
			return err
		}
		var failed atomic.Pointer[error]
		var partitions sync.WaitGroup
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			partitions.Go(func() {
				for _, r := range p.Records {
					if err := b.bareOnce(ctx, group, r); err != nil {
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

func (b *backlog) bareOnce(ctx context.Context, scope string, r *kgo.Record) error {
	key, owner := []string{scope + "/" + string(r.Headers[0].Value)}, storage.NewOwner()
	answer, err := bareClaim.Run(ctx, b.redis, key, owner, lease.Milliseconds()).Text()
	if err != nil || answer != "claimed" {
		return fmt.Errorf("claim: %s, %w", answer, err)
	}
	done, err := bareComplete.Run(ctx, b.redis, key, owner, retention.Milliseconds()).Bool()
	if err != nil || !done {
		return fmt.Errorf("complete: %t, %w", done, err)
	}
	return nil
}

// library is the consumer with its defaults.
func (b *backlog) library(ctx context.Context, group string, keyOrder bool) error {
	store, err := redis.New(b.redis, redis.Options{})
	if err != nil {
		return err
	}
	processor, err := idempotency.New(idempotency.Options{Store: store, MaxAttempts: -1})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var handled atomic.Int64
	c, err := consumer.New(consumer.Config{
		Brokers: b.brokers, Group: group, Topics: []string{backlogTopic}, KeyOrder: keyOrder,
		Once: consumer.Once{Runner: processor},
		Handler: func(context.Context, *kgo.Record) error {
			if handled.Add(1) == int64(b.records) {
				stop()
			}
			return nil
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}
