package main

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// consumer notes the arrivals in topics.
type consumer struct {
	client  *kgo.Client
	log     *journal
	leave   context.CancelFunc
	done    sync.WaitGroup
	arrived map[string]int64 // records by topic, once done
	failed  error            // once done
}

// startConsumer reads topics from the beginning until closed.
func startConsumer(ctx context.Context, k *rig.Broker, topics []string, log *journal) (*consumer, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMinBytes(1), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	ctx, leave := context.WithCancel(ctx)
	c := &consumer{client: client, log: log, leave: leave, arrived: map[string]int64{}}
	c.done.Go(func() { c.failed = c.read(ctx) })
	return c, nil
}

func (c *consumer) read(ctx context.Context) error {
	for {
		fetches := c.client.PollFetches(ctx)
		now := c.log.now()
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			c.arrived[record.Topic]++
			id, err := eventID(record)
			if err != nil {
				return err
			}
			if err := c.log.received(id, now); err != nil {
				return err
			}
		}
	}
}

// close ends the consumer, and returns the error of an earlier end.
func (c *consumer) close() error {
	c.leave()
	c.done.Wait()
	c.client.Close()
	return c.failed
}
