package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
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
			case arrivals <- newArrival(r, now):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

func newArrival(r *kgo.Record, at time.Time) arrival {
	a := arrival{
		topic: r.Topic, partition: r.Partition, offset: r.Offset,
		key: string(r.Key), value: string(r.Value), at: at,
	}
	for _, h := range r.Headers {
		a.headers = append(a.headers, header{h.Key, string(h.Value)})
	}
	return a
}
