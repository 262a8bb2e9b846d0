package tracing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/outbox"
	"github.com/cdc-outbox/cdc-outbox/outbox/tracing"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

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

	// What a consumer makes of the headers is the span that wrote them.
	got := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier(written(ctx, t))))
	if want := span.SpanContext().WithRemote(true); !got.Equal(want) {
		t.Errorf("span %+v, want %+v", got, want)
	}
}

func TestNoSpanIsNoHeader(t *testing.T) {
	if headers := tracing.Headers(t.Context()); len(headers) != 0 {
		t.Errorf("headers %v", headers)
	}
}

// written returns the headers of an event in the table.
func written(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	url := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, url, outbox.Schema)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	w, err := outbox.New(outbox.Options{ContextHeaders: tracing.Headers})
	if err != nil {
		t.Fatal(err)
	}
	var headers []byte
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := w.Write(ctx, outbox.PGX(tx), outbox.Event{AggregateType: "order", AggregateID: "42", Type: "OrderPlaced", Payload: 1})
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT headers FROM outbox`).Scan(&headers)
	})
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]string
	if err := json.Unmarshal(headers, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// The events that a Writer with these headers writes belong to the trace of the
// request that they are written for.
func ExampleHeaders() {
	w, err := outbox.New(outbox.Options{ContextHeaders: tracing.Headers})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = w // write with w in place of the package's functions

	// A handler's context, as OpenTelemetry's middleware makes it.
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	})
	fmt.Println(tracing.Headers(ctx)["traceparent"])
	// Output: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
}
