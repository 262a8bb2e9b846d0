package tracing_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/idempotency/tracing"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
)

var errDown = errors.New("the warehouse does not answer")

func record() *kgo.Record {
	return &kgo.Record{
		Topic: "orders", Partition: 3, Offset: 42, Key: []byte("o-1"), Value: []byte("paid"),
		Headers: []kgo.RecordHeader{
			{Key: "id", Value: []byte("e-1")},
			{Key: "traceparent", Value: []byte("00-" + traceID + "-" + spanID + "-01")},
			{Key: "tracestate", Value: []byte("vendor=x")},
			{Key: "baggage", Value: []byte("tenant=t1")},
		},
	}
}

// attempt processes the record and returns the span.
func attempt(t *testing.T, o tracing.Options, r *kgo.Record, next consumer.Process) sdk.ReadOnlySpan {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	o.Provider = sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	// Run's own span must not become the parent.
	ctx, outer := sdk.NewTracerProvider().Tracer("").Start(t.Context(), "service")
	defer outer.End()
	want, wantErr := next(ctx, r)
	got, err := tracing.Middleware(o)(next)(ctx, r)
	if got.Disposition != want.Disposition || !errors.Is(err, wantErr) {
		t.Errorf("the middleware turned %v, %v into %v, %v", want, wantErr, got, err)
	}
	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("%d spans ended, want 1", len(ended))
	}
	return ended[0]
}

func returns(result idempotency.Result, err error) consumer.Process {
	return func(context.Context, *kgo.Record) (idempotency.Result, error) { return result, err }
}

func TestSpanIsLinkedToTheProducers(t *testing.T) {
	span := attempt(t, tracing.Options{Group: "shipping"}, record(),
		returns(idempotency.Result{Disposition: idempotency.Handled, Attempt: 2, Layer: storage.LayerStore}, nil))
	if span.Name() != "process orders" || span.SpanKind() != trace.SpanKindConsumer {
		t.Errorf("the span is %q of kind %v", span.Name(), span.SpanKind())
	}
	if span.Parent().IsValid() {
		t.Errorf("the span has the parent %v", span.Parent().SpanID())
	}
	links := span.Links()
	if len(links) != 1 || links[0].SpanContext.TraceID().String() != traceID || links[0].SpanContext.SpanID().String() != spanID ||
		links[0].SpanContext.TraceState().Get("vendor") != "x" || span.SpanContext().TraceID().String() == traceID {
		t.Errorf("the links are %+v", links)
	}
	want := map[attribute.Key]any{
		"messaging.system": "kafka", "messaging.operation.name": "process", "messaging.operation.type": "process",
		"messaging.destination.name": "orders", "messaging.destination.partition.id": "3", "messaging.kafka.offset": int64(42),
		"messaging.message.id": "e-1", "messaging.message.body.size": int64(4), "messaging.kafka.message.key": "o-1",
		"messaging.consumer.group.name": "shipping",
		"idempotency.disposition":       "handled", "idempotency.attempt": int64(2), "idempotency.layer": "store",
	}
	for _, a := range span.Attributes() {
		if want[a.Key] != a.Value.AsInterface() {
			t.Errorf("%s is %v, want %v", a.Key, a.Value.AsInterface(), want[a.Key])
		}
		delete(want, a.Key)
	}
	for key := range want {
		t.Errorf("%s is missing", key)
	}
	if span.Status().Code != codes.Unset {
		t.Errorf("the status is %v", span.Status())
	}
}

func TestParent(t *testing.T) {
	span := attempt(t, tracing.Options{Parent: true}, record(), returns(idempotency.Result{Disposition: idempotency.Handled}, nil))
	if span.Parent().SpanID().String() != spanID || span.SpanContext().TraceID().String() != traceID || len(span.Links()) != 0 {
		t.Errorf("the parent is %v, the links are %v", span.Parent(), span.Links())
	}
}

// A topic with ids elsewhere than in the header id.
func TestIDFromElsewhere(t *testing.T) {
	span := attempt(t, tracing.Options{ID: func(r *kgo.Record) (string, error) { return string(r.Key), nil }}, record(), returns(idempotency.Result{Disposition: idempotency.Handled}, nil))
	if want := attribute.String("messaging.message.id", "o-1"); !slices.Contains(span.Attributes(), want) {
		t.Errorf("the attributes are %v, without %v", span.Attributes(), want)
	}
}

func TestRecordWithoutContext(t *testing.T) {
	for _, parent := range []bool{false, true} {
		span := attempt(t, tracing.Options{Parent: parent}, &kgo.Record{Topic: "orders"}, returns(idempotency.Result{Disposition: idempotency.Handled}, nil))
		if span.Parent().IsValid() || len(span.Links()) != 0 {
			t.Errorf("the parent is %v, the links are %v", span.Parent(), span.Links())
		}
	}
}

func TestHandlerSeesSpanAndBaggage(t *testing.T) {
	o := tracing.Options{Propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})}
	var seen trace.SpanContext
	var tenant string
	span := attempt(t, o, record(), func(ctx context.Context, _ *kgo.Record) (idempotency.Result, error) {
		seen, tenant = trace.SpanContextFromContext(ctx), baggage.FromContext(ctx).Member("tenant").Value()
		return idempotency.Result{Disposition: idempotency.Handled}, nil
	})
	if seen.SpanID() != span.SpanContext().SpanID() || tenant != "t1" {
		t.Errorf("the handler saw the span %v and the tenant %q", seen.SpanID(), tenant)
	}
}

func TestErrors(t *testing.T) {
	for name, test := range map[string]struct {
		disposition idempotency.Disposition
		err         error
		status      codes.Code
		events      int
	}{
		"failed":        {idempotency.Retry, errDown, codes.Error, 1},
		"not due":       {idempotency.NotDue, errors.New("not due"), codes.Unset, 0},
		"elsewhere":     {idempotency.Elsewhere, errors.New("elsewhere"), codes.Unset, 0},
		"skipped":       {idempotency.Skipped, nil, codes.Unset, 0},
		"dead-lettered": {idempotency.DeadLettered, nil, codes.Error, 0},
		"lost":          {idempotency.Lost, storage.ErrLeaseLost, codes.Error, 1},
		"unavailable":   {idempotency.Unavailable, errDown, codes.Error, 1},
	} {
		t.Run(name, func(t *testing.T) {
			span := attempt(t, tracing.Options{}, record(), returns(idempotency.Result{Disposition: test.disposition}, test.err))
			if span.Status().Code != test.status || len(span.Events()) != test.events {
				t.Errorf("the status is %v with %d events, want %v with %d", span.Status(), len(span.Events()), test.status, test.events)
			}
		})
	}
}
