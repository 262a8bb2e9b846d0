package tracing_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/tracing"
)

// A topic whose ids are not in the header id.
func ExampleOptions() {
	spans := tracetest.NewSpanRecorder()
	middleware := tracing.Middleware(tracing.Options{
		Provider: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)),
		ID:       func(r *kgo.Record) (string, error) { return string(r.Key), nil },
	})
	process := middleware(func(context.Context, *kgo.Record) (idempotency.Result, error) {
		return idempotency.Result{Disposition: idempotency.Handled, Attempt: 1}, nil
	})
	_, err := process(context.Background(), &kgo.Record{Topic: "payments", Key: []byte("payment-7")})
	for _, a := range spans.Ended()[0].Attributes() {
		if a.Key == "messaging.message.id" {
			fmt.Println(a.Value.AsString(), err)
		}
	}
	// Output: payment-7 <nil>
}
