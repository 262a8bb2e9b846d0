package delivery

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

func recentEvent(id string) *transform.Event {
	ev := &transform.Event{ID: []byte(id), Table: "public.outbox", CommitTime: time.Now().Add(-time.Second)}
	ev.Record = kgo.Record{Topic: "orders", Key: []byte("7"), Value: []byte("the payload"), Partition: 2, Offset: 40,
		Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}, {Key: "eventType", Value: []byte("Placed")}}}
	return ev
}

func batch(n int) (events []*transform.Event) {
	for range n {
		events = append(events, recentEvent("e"))
	}
	return events
}

func TestRecent(t *testing.T) {
	r := NewRecent("eventType", false)
	r.published([]*transform.Event{recentEvent("e-1"), recentEvent("e-2")})
	r.rejected(recentEvent("e-3"), &transform.BadEvent{Reason: transform.ReasonNullKey, Err: errors.New("no key")}, "event written to the dead-letter topic")
	events, rejects := r.After(0)
	if len(events) != 1 || len(rejects) != 1 {
		t.Fatalf("%d events and %d bad ones, want the last of the batch and one", len(events), len(rejects))
	}
	e := events[0]
	if e.ID != "e-2" || *e.Key != "7" || e.Type != "Placed" || e.Topic != "orders" || e.Partition != 2 || e.Offset != 40 || *e.LatencySeconds < 1 {
		t.Errorf("the event is %+v", e)
	}
	if b := rejects[0]; b.Reason != string(transform.ReasonNullKey) || b.Outcome == "" || !strings.Contains(b.Error, "no key") || b.Number <= e.Number {
		t.Errorf("the bad event is %+v", b)
	}
	if e.Payload != "" || rejects[0].Payload != "" {
		t.Error("a payload is kept although nobody asked for payloads")
	}
	if events, rejects = r.After(rejects[0].Number); len(events)+len(rejects) != 0 {
		t.Error("what is known is told again")
	}
	r = NewRecent("eventType", true)
	r.published(batch(1))
	if events, _ := r.After(0); events[0].Payload != "the payload" {
		t.Error("the payload is missing")
	}
}

func TestRecentIsBounded(t *testing.T) {
	r := NewRecent("", true)
	stop := r.Watch()
	long := recentEvent(strings.Repeat("x", 1<<20))
	long.Record.Topic = strings.Repeat("t", 1<<20) // of a bad event
	long.Record.Key, long.Record.Value = []byte(strings.Repeat("é", 1<<20)), []byte(strings.Repeat("v", 1<<20))
	r.published([]*transform.Event{long})
	for range 100 {
		r.published(batch(50))
	}
	stop()
	events, _ := r.After(0)
	if len(events) != recentEvents {
		t.Errorf("%d events are kept", len(events))
	}
	for i, e := range events[1:] {
		if e.Number != events[i].Number+1 {
			t.Fatalf("event %d follows %d", e.Number, events[i].Number)
		}
	}
	if s := r.seen(long, time.Now()); len(s.ID) > 300 || len(*s.Key) > 300 || len(s.Topic) > 300 || len(s.Payload) > shownPayload+10 {
		t.Errorf("lengths %d, %d, %d are kept", len(s.ID), len(*s.Key), len(s.Payload))
	}
	last := events[len(events)-1].Number
	r.published(batch(50)) // nobody watches
	if events, _ = r.After(last); len(events) != 1 {
		t.Errorf("%d of a batch are kept while nobody looks", len(events))
	}
	var none *Recent
	none.published(batch(1))
	none.rejected(long, &transform.BadEvent{Err: errors.New("no")}, "")
}

// Without a reader, the cost is a copy for each batch.
func BenchmarkRecent(b *testing.B) {
	r := NewRecent("eventType", false)
	events := batch(1000)
	b.ReportAllocs()
	for b.Loop() {
		r.published(events)
	}
}

// If nobody may see events, the last is told without the id.
func TestTheLastEventIsAnonymousWhereNobodyMaySeeEvents(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		r := NewRecent("eventType", false)
		if hidden {
			r.Anonymous()
		}
		d := New(Options{Recent: r})
		if d.Last() != nil {
			t.Error("there is a last event before the first")
		}
		d.last.Store(lastOf(batch(1)))
		if last := d.Last(); (last.ID == "") != hidden || last.Topic != "orders" {
			t.Errorf("hidden %t: %+v", hidden, last)
		}
	}
}
