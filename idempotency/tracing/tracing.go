package tracing

import (
	"context"
	"strconv"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
)

// The attributes beside the semantic conventions'.
const (
	dispositionKey = attribute.Key("idempotency.disposition")
	attemptKey     = attribute.Key("idempotency.attempt")
	layerKey       = attribute.Key("idempotency.layer")
)

const scope = "github.com/cdc-outbox/cdc-outbox/idempotency/tracing"

// operation is the spans' name and type of operation.
const operation = "process"

// Options of the middleware. The zero Options are usable.
type Options struct {
	// Provider defaults to the global provider.
	Provider trace.TracerProvider
	// Propagator reads the producer's context from a record's headers. Default:
	// propagation.TraceContext. Add propagation.Baggage for baggage in the
	// handler's context.
	Propagator propagation.TextMapPropagator
	// Group is the consumer group's name, for the attribute. Optional.
	Group string
	// ID returns the message's id, for the attribute. Default:
	// the header id.
	ID func(r *kgo.Record) (string, error)
	// Parent makes the producer's span the parent rather than a link.
	Parent bool
}

// Middleware returns a middleware for consumer.Config or a Process of your own.
// Put it first.
func Middleware(o Options) func(consumer.Process) consumer.Process {
	if o.Provider == nil {
		o.Provider = otel.GetTracerProvider()
	}
	if o.Propagator == nil {
		o.Propagator = propagation.TraceContext{}
	}
	if o.ID == nil {
		o.ID = consumer.Header("id")
	}
	tracer := o.Provider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	return func(next consumer.Process) consumer.Process {
		return func(ctx context.Context, r *kgo.Record) (idempotency.Result, error) {
			ctx, span := o.start(ctx, tracer, r)
			defer span.End() // also when the handler panics
			result, err := next(ctx, r)
			describe(span, result, err)
			return result, err
		}
	}
}

func (o *Options) start(ctx context.Context, tracer trace.Tracer, r *kgo.Record) (context.Context, trace.Span) {
	headers := propagation.MapCarrier{}
	for _, h := range r.Headers { // the last of a name counts
		headers[h.Key] = string(h.Value)
	}
	// The context of Run may hold an unrelated span.
	ctx = o.Propagator.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), headers)
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(o.attributes(r)...),
	}
	if producer := trace.SpanContextFromContext(ctx); producer.IsValid() && !o.Parent {
		opts = append(opts, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: producer}))
	}
	return tracer.Start(ctx, operation+" "+r.Topic, opts...)
}

func (o *Options) attributes(r *kgo.Record) []attribute.KeyValue {
	attributes := []attribute.KeyValue{
		semconv.MessagingSystemKafka,
		semconv.MessagingOperationName(operation),
		semconv.MessagingOperationTypeProcess,
		semconv.MessagingDestinationName(r.Topic),
		semconv.MessagingDestinationPartitionID(strconv.Itoa(int(r.Partition))),
		semconv.MessagingKafkaOffset(int(r.Offset)),
		semconv.MessagingMessageBodySize(len(r.Value)),
	}
	if o.Group != "" {
		attributes = append(attributes, semconv.MessagingConsumerGroupName(o.Group))
	}
	if id, err := o.ID(r); err == nil && id != "" {
		attributes = append(attributes, semconv.MessagingMessageID(id))
	}
	if len(r.Key) > 0 && utf8.Valid(r.Key) {
		attributes = append(attributes, semconv.MessagingKafkaMessageKey(string(r.Key)))
	}
	if r.Value == nil {
		attributes = append(attributes, semconv.MessagingKafkaMessageTombstone(true))
	}
	return attributes
}

// describe notes the outcome of the attempt. Somebody else at work, or a time
// not due, is no error.
func describe(span trace.Span, result idempotency.Result, err error) {
	disposition := result.Disposition.String()
	span.SetAttributes(dispositionKey.String(disposition))
	if result.Attempt > 0 {
		span.SetAttributes(attemptKey.Int(result.Attempt))
	}
	if result.Layer != "" {
		span.SetAttributes(layerKey.String(string(result.Layer)))
	}
	waits := result.Disposition == idempotency.Elsewhere || result.Disposition == idempotency.NotDue
	if err != nil && !waits {
		span.RecordError(err)
	}
	switch result.Disposition {
	case idempotency.Handled, idempotency.Skipped, idempotency.Elsewhere, idempotency.NotDue:
	default:
		span.SetAttributes(semconv.ErrorTypeKey.String(disposition))
		span.SetStatus(codes.Error, disposition)
	}
}
