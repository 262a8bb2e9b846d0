package transform_test

import (
	"fmt"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Events are released on another goroutine, as they are delivered. No event has
// anything of the former event in the same memory, and the bytes of released events
// are untouched.
func TestReleasedEventsLeaveNothingBehind(t *testing.T) {
	router := newRouter(t, nil)
	released := make(chan *transform.Event, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev := range released {
			ev.Record.Offset, ev.Warning = 7, transform.WarningNoTrace
			ev.Release()
		}
	}()
	plain, rich := headersRow(nil), headersRow([]byte(`{"a": "1", "b": "2", "c": "3", "d": "4"}`))
	bad := headersRow([]byte(`[]`))
	want := map[*pg.Row]string{}
	for i := range 20_000 {
		row := []*pg.Row{plain, rich, bad}[i%3]
		ev, err := router.Route(row)
		got := fmt.Sprintf("%+v %s %s %q %v %v", err, ev.Record.Key, ev.Record.Value, ev.Record.Headers, ev.Warning, ev.Record.Offset)
		if want[row] == "" {
			want[row] = got
		} else if got != want[row] {
			t.Fatalf("event %d:\n%s, want\n%s", i, got, want[row])
		}
		released <- ev
	}
	close(released)
	<-done
	if got := string(plain.Values[4].Data); got != "payload" {
		t.Errorf("the row's payload is %q", got)
	}
}

// No router may reuse an event not made by a router.
func TestReleaseOfAnotherEvent(t *testing.T) {
	(&transform.Event{}).Release()
}

func BenchmarkRouteReleased(b *testing.B) {
	router, row := benchmarkRow(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		ev, err := router.Route(row)
		if err != nil {
			b.Fatal(err)
		}
		ev.Release()
	}
}
