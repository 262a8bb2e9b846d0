package main

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// consumer notes the arrivals in a topic.
type consumer struct {
	client *kgo.Client
	log    *journal
	leave  context.CancelFunc
	done   sync.WaitGroup
	failed error // once done
}

// startConsumer reads a topic from the beginning until closed.
func startConsumer(ctx context.Context, k *rig.Broker, topic string, log *journal) (*consumer, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMinBytes(1), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	ctx, leave := context.WithCancel(ctx)
	c := &consumer{client: client, log: log, leave: leave}
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
