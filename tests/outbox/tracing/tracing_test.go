package tracing_test

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/outbox"
	"github.com/cdc-outbox/cdc-outbox/outbox/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHeadersCarryTheSpan(t *testing.T) {
	provider := sdktrace.NewTracerProvider()
	defer func() { _ = provider.Shutdown(context.Background()) }()
	state, err := trace.ParseTraceState("vendor=value")
	if err != nil {
		t.Fatal(err)
	}
	parent := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	})
	ctx, span := provider.Tracer("test").Start(trace.ContextWithRemoteSpanContext(t.Context(), parent), "place order")
	defer span.End()

	// A consumer's parent span, by the headers, is the writing span.
	got := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier(tracing.Headers(ctx))))
	if want := span.SpanContext().WithRemote(true); !got.Equal(want) {
		t.Errorf("span %+v, want %+v", got, want)
	}
}

func TestNoSpanIsNoHeader(t *testing.T) {
	if headers := tracing.Headers(t.Context()); len(headers) != 0 {
		t.Errorf("headers %v", headers)
	}
}

// The events a Writer with these headers writes belong to the trace of the
// request they are written for.
func Example_headers() {
	w, err := outbox.New(outbox.Options{ContextHeaders: tracing.Headers})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = w // write with w in place of the package's functions

	// A handler's context, as made by OpenTelemetry's middleware.
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	})
	fmt.Println(tracing.Headers(ctx)["traceparent"])
	// Output: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
}
