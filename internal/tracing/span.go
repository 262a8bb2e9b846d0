package tracing

import (
	"strconv"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// longest bounds the texts of a span that are from a row.
const longest = 256

// spanOf is the span of an event that was dealt with at the time end, and begins with the
// commit. problem is why the event was not published; empty if it was.
func spanOf(ev *transform.Event, source *Source, end time.Time, problem string) *tracepb.Span {
	rec := &ev.Record
	begin := ev.CommitTime
	if begin.IsZero() || begin.After(end) { // two machines' clocks
		begin = end
	}
	topic := cut([]byte(rec.Topic)) // a bad event's may be anything
	attributes := []*commonpb.KeyValue{
		text("messaging.system", "kafka"),
		text("messaging.operation.name", "send"),
		text("messaging.operation.type", "send"),
		text("messaging.destination.name", topic),
		text("messaging.client.id", source.ClientID),
		text("messaging.message.id", cut(ev.ID)),
		number("messaging.message.body.size", int64(len(rec.Value))),
		text("cdc_outbox.table", ev.Table),
	}
	add := func(kv *commonpb.KeyValue) { attributes = append(attributes, kv) }
	if key, _ := ev.Plain(); key != nil {
		add(text("messaging.kafka.message.key", cut(key)))
	}
	if rec.Value == nil {
		add(&commonpb.KeyValue{Key: "messaging.kafka.message.tombstone", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}})
	}
	if !ev.Position.IsZero() {
		add(text("cdc_outbox.lsn", ev.Position.CommitLSN.String()))
		add(number("cdc_outbox.seq", int64(ev.Position.Seq)))
	}
	if source.Pipeline != "" {
		add(text("cdc_outbox.pipeline", source.Pipeline))
	}
	status := &tracepb.Status{}
	if problem == "" {
		add(number("messaging.kafka.offset", rec.Offset))
		add(text("messaging.destination.partition.id", strconv.Itoa(int(rec.Partition))))
	} else {
		add(text("error.type", problem))
		status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "not published: " + problem}
	}
	span := &tracepb.Span{
		TraceId: ev.Span.TraceID[:], SpanId: ev.Span.SpanID[:],
		TraceState: string(ev.Span.State), Flags: sampledRemote,
		Name: "send " + topic, Kind: tracepb.Span_SPAN_KIND_PRODUCER,
		StartTimeUnixNano: uint64(begin.UnixNano()), EndTimeUnixNano: uint64(end.UnixNano()),
		Attributes: attributes, Status: status,
	}
	if ev.Span.ParentID != [8]byte{} {
		span.ParentSpanId = ev.Span.ParentID[:]
	}
	return span
}

// sampledRemote are flags: sampled, and whether the parent is of another process.
const sampledRemote = 0x301

func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

func number(key string, value int64) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: value}}}
}

// cut copies a text of a row, as valid UTF-8 of bounded length.
func cut(b []byte) string {
	return strings.ToValidUTF8(string(b[:min(len(b), longest)]), "\uFFFD")
}
