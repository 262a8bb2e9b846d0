package consumer_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/metrics"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// shadow has the library look on while records are handled as before.
func shadow(ctx context.Context, store storage.Store, m *metrics.Metrics, handleWithOldKeys consumer.Handler, r *kgo.Record) error {
	processor, err := idempotency.New(idempotency.Options{Store: store, Shadow: true, Observer: m.Observer()})
	if err != nil {
		return err
	}
	defer processor.Close()
	once := consumer.Once{Scope: "shipping", Runner: processor}
	process, err := once.Wrap(handleWithOldKeys)
	if err != nil {
		return err
	}
	for range 2 {
		if _, err := process(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// The old check has lost the key of a message coming again.
func Example_shadow() {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	if err != nil {
		fmt.Println(err)
		return
	}
	handleWithOldKeys := func(_ context.Context, r *kgo.Record) error {
		fmt.Printf("ship %s\n", r.Value)
		return nil
	}
	r := &kgo.Record{Value: []byte("o-1"), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("1")}}}
	if err := shadow(context.Background(), memory.New(memory.Options{}), m, handleWithOldKeys, r); err != nil {
		fmt.Println(err)
		return
	}
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() == "idempotency_shadow_decisions_total" {
			for _, series := range f.GetMetric() {
				fmt.Println(series.GetLabel()[0].GetValue(), series.GetCounter().GetValue())
			}
		}
	}
	// Output:
	// ship o-1
	// ship o-1
	// handled 1
	// skipped 1
}
