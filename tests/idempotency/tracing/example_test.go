package tracing_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/tracing"
)

func Example_middleware() {
	spans := tracetest.NewSpanRecorder() // an exporter in a service
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	middleware := tracing.Middleware(tracing.Options{Provider: provider, Group: "shipping"})
	// In a service: consumer.Config{Middleware: …{middleware}}.
	process := middleware(func(context.Context, *kgo.Record) (idempotency.Result, error) {
		return idempotency.Result{Disposition: idempotency.Handled, Attempt: 1}, nil
	})
	_, err := process(context.Background(), &kgo.Record{Topic: "orders", Headers: []kgo.RecordHeader{
		{Key: "traceparent", Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")},
	}})
	span := spans.Ended()[0]
	fmt.Println(span.Name(), "linked to", span.Links()[0].SpanContext.SpanID(), err)
	for _, a := range span.Attributes() {
		if a.Key == "idempotency.disposition" {
			fmt.Println(a.Key, a.Value.AsString())
		}
	}
	_ = consumer.Config{Middleware: []func(consumer.Process) consumer.Process{middleware}}
	// Output:
	// process orders linked to b7ad6b7169203331 <nil>
	// idempotency.disposition handled
}
