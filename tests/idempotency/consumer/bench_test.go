package consumer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

// BenchmarkConsumer compares records per second through a Consumer with a bare
// poll loop over the same topic: compare the figures of a single run.
//
//	bare       kgo's PollRecords, and nothing else
//	unguarded  the consumer, with a Runner without keys
//	memory     the consumer, with a Processor around the store in memory
func BenchmarkConsumer(b *testing.B) {
	broker := kafkatest.Start(b)
	const partitions = 4
	broker.CreateTopic(b, "orders", partitions, nil)
	produced := 0
	fill := func(n int) { // the topic holds at least n records, each with a separate id
		var records []*kgo.Record
		for ; produced < n; produced++ {
			records = append(records, record(int32(produced%partitions), fmt.Sprint(produced%400), fmt.Sprint(produced)))
		}
		produce(b, broker, records...)
	}
	b.Run("bare", func(b *testing.B) {
		fill(b.N)
		client := broker.Client(b, kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("bare"))
		b.ResetTimer()
		for seen := 0; seen < b.N; {
			seen += client.PollRecords(b.Context(), 10_000).NumRecords()
		}
		perSecond(b)
	})
	keepsNothing := runnerFunc(func(ctx context.Context, _ idempotency.Message, h idempotency.Handler) (idempotency.Result, error) {
		_, err := h(ctx)
		return idempotency.Result{Disposition: idempotency.Handled}, err
	})
	runners := map[string]func() idempotency.Runner{
		"unguarded": func() idempotency.Runner { return keepsNothing },
		"memory":    func() idempotency.Runner { return processor(b, nil) },
	}
	for _, name := range []string{"unguarded", "memory"} {
		for _, keyOrder := range []bool{false, true} {
			b.Run(name+map[bool]string{false: "/partition order", true: "/key order"}[keyOrder], func(b *testing.B) {
				fill(b.N)
				seen := make(chan struct{})
				var handled atomic.Int64
				cfg := config(broker, runners[name](), func(context.Context, *kgo.Record) error {
					if handled.Add(1) == int64(b.N) {
						close(seen)
					}
					return nil
				})
				cfg.Group, cfg.KeyOrder = fmt.Sprint(b.Name(), b.N), keyOrder
				cfg.CommitInterval = time.Second
				b.ResetTimer()
				m := start(b, cfg)
				<-seen
				perSecond(b)
				b.StopTimer()
				m.stop(b)
			})
		}
	}
}

func perSecond(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
