// Package tracing carries the W3C trace context of a request into the request's
// events, as the headers traceparent and tracestate. The connector passes them
// on, so the consumer's span can belong to the same trace:
//
//	w, err := outbox.New(outbox.Options{ContextHeaders: tracing.Headers})
//
// Only OpenTelemetry's API is imported, not the SDK.
//
// Non-goals: spans of its own, baggage, formats other than W3C's.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
)

// Headers returns the trace context of ctx's span, for outbox.Options; none if
// ctx has no valid span. Headers does not block and may be called concurrently.
func Headers(ctx context.Context) map[string]string {
	headers := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, headers)
	return headers
}
