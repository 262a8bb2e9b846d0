package transform_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

const sampledParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func withSpans(ratio float64) func(*config.Config) {
	return func(c *config.Config) { c.Event.Spans = transform.Spans{On: true, Ratio: ratio} }
}

// routeWithHeaders routes a row with the headers column, with spans.
func routeWithHeaders(t *testing.T, id, headers string, ratio float64) *transform.Event {
	t.Helper()
	row := headersRow([]byte(headers))
	row.Values[0].Data = []byte(id)
	ev := route(t, newRouter(t, withSpans(ratio)), row)
	return ev
}

func traceparentOf(ev *transform.Event) string {
	value, _ := transform.Header(ev.Record.Headers, "traceparent")
	return string(value)
}

func TestTheRecordNamesTheSpan(t *testing.T) {
	ev := routeWithHeaders(t, "e-1", `{"tracestate": "a=b", "traceparent": "`+sampledParent+`"}`, 0)
	s := ev.Span
	if s == nil || fmt.Sprintf("%x %x %s", s.TraceID, s.ParentID, s.State) != "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 a=b" {
		t.Fatalf("span %+v", s)
	}
	if got, want := traceparentOf(ev), fmt.Sprintf("00-%x-%x-01", s.TraceID, s.SpanID); got != want || got == sampledParent {
		t.Errorf("traceparent %s, want %s", got, want)
	}
	again := routeWithHeaders(t, "e-1", `{"tracestate": "a=b", "traceparent": "`+sampledParent+`"}`, 0)
	if fmt.Sprint(*again.Span) != fmt.Sprint(*s) {
		t.Errorf("published again, the span is %+v, not %+v", again.Span, s)
	}
	other := routeWithHeaders(t, "e-2", `{"traceparent": "`+sampledParent+`"}`, 0)
	if other.Span.SpanID == s.SpanID {
		t.Error("two events have one span")
	}
}

func TestEventsWithoutASpan(t *testing.T) {
	for name, headers := range map[string]string{
		"not sampled": `{"traceparent": "` + strings.TrimSuffix(sampledParent, "1") + `0"}`,
		"no parent":   `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			ev := routeWithHeaders(t, "e-1", headers, 0)
			plain := route(t, newRouter(t, nil), headersRow([]byte(headers)))
			if ev.Span != nil || traceparentOf(ev) != traceparentOf(plain) {
				t.Errorf("span %+v, traceparent %q", ev.Span, traceparentOf(ev))
			}
		})
	}
	if ev := route(t, newRouter(t, nil), headersRow([]byte(`{"traceparent": "`+sampledParent+`"}`))); ev.Span != nil || traceparentOf(ev) != sampledParent {
		t.Error("a span although they are off")
	}
}

// The ratio decides by the trace's id, the same at each publication.
func TestTracesOfTheirOwn(t *testing.T) {
	const events = 4000
	traced := 0
	for i := range events {
		ev := routeWithHeaders(t, fmt.Sprint("e-", i), `{}`, 0.25)
		if ev.Span == nil {
			continue
		}
		traced++
		if ev.Span.ParentID != [8]byte{} || traceparentOf(ev) != fmt.Sprintf("00-%x-%x-01", ev.Span.TraceID, ev.Span.SpanID) {
			t.Fatalf("span %+v, traceparent %q", ev.Span, traceparentOf(ev))
		}
	}
	if traced < events/5 || traced > events*3/10 {
		t.Errorf("%d of %d events have a trace, want about a quarter", traced, events)
	}
	if routeWithHeaders(t, "e-1", `{}`, 1).Span == nil {
		t.Error("a ratio of 1 leaves an event out")
	}
}

// A dead letter keeps its row's trace context, and has the span all the same.
func TestSpanOfABadEvent(t *testing.T) {
	row := headersRow([]byte(`{"traceparent": "` + sampledParent + `"}`))
	row.Values[2].Data = nil
	ev, err := newRouter(t, withSpans(0)).Route(row)
	if err == nil || ev.Span == nil || traceparentOf(ev) != sampledParent {
		t.Errorf("error %v, span %+v, traceparent %s", err, ev.Span, traceparentOf(ev))
	}
}
