// Package tracing exports the spans of published events by OTLP over HTTP.
//
// Invariants:
//
//  1. The pipeline never waits for an export: beyond a bound, further spans are
//     dropped and counted.
//  2. A span is of an event that is dealt with: durable in Kafka, in the
//     dead-letter topic or in the quarantine, or skipped. A process that is killed
//     loses spans; an event published again has its span again, with the same ids.
//  3. An endpoint that is away is told once, and in the status.
//
// The exporter of OpenTelemetry's SDK is not used: it adds 7.2 MB to the program, as it
// links gRPC, and it drops spans without telling a number. The messages are those of
// OpenTelemetry's slim module, 0.1 MB.
//
// Non-goals: gRPC, logs, metrics; spans of reading.
package tracing
