// Package tracing gives each attempt at a record a span of OpenTelemetry,
// linked to the span that produced the record.
//
// The producer's context comes from the headers traceparent and tracestate (W3C
// Trace Context), which package outbox carries from the transaction's context.
// By default the attempt begins a separate trace with a link to it, as the
// semantic conventions advise: a record may be consumed days later, by several,
// and more than once. Options.Parent makes it a child instead.
//
// The span covers claim, handler and settlement; spans the handler starts from
// its context are its children. Its attributes follow the semantic conventions
// for messaging and Kafka, and beside them:
//
//	idempotency.disposition  what became of the message, see idempotency.Disposition
//	idempotency.attempt      the number of the attempt, if the handler ran
//	idempotency.layer        the layer of the store that answered
//
// Only OpenTelemetry's API is imported, not the SDK.
//
// Non-goals: spans for polls, commits and waits; metrics and logs.
package tracing
