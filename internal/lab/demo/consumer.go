package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
)

// consume hands on every record of the topic until ctx ends.
func consume(ctx context.Context, brokers []string, arrivals chan<- arrival) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.ClientID("demo-consumer"),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consumer: %w", err)
		}
		now := time.Now()
		for r := range fetches.RecordsAll() {
			select {
			case arrivals <- arrival{checker.RecordOf(r), now}:
			case <-ctx.Done():
				return nil
			}
		}
	}
}
