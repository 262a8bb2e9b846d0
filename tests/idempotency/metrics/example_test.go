package metrics_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/metrics"
)

func Example_new() {
	// prometheus.DefaultRegisterer in a service.
	m, err := metrics.New(prometheus.NewRegistry())
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = idempotency.Options{Observer: m.Observer()}     // for New
	_ = consumer.Config{Observer: m.ConsumerObserver()} // for consumer.New
	fmt.Println("counting")
	// Output: counting
}

// Consumers of a single process, told apart.
func Example_metricsConsumerObserver() {
	registry := prometheus.NewRegistry()
	for _, group := range []string{"billing", "shipping"} {
		labelled := prometheus.WrapRegistererWith(prometheus.Labels{"group": group}, registry)
		m, err := metrics.New(labelled)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = consumer.Config{Group: group, Observer: m.ConsumerObserver()}
	}
	families, err := registry.Gather()
	fmt.Println(len(families) > 0, err)
	// Output: true <nil>
}
