package delivery

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

const (
	// recentEvents and recentRejects bound the events remembered.
	recentEvents  = 100
	recentRejects = 50
	// ofBatch is how many events of a batch are remembered for a reader; else the last.
	ofBatch = 20
	// shownText and shownPayload bound everything kept of a text.
	shownText    = 200
	shownTopic   = 249 // Kafka's limit; a bad event's topic may be any text
	shownPayload = 2 << 10
)

// Seen is an event dealt with.
type Seen struct {
	// Number grows by one with each event remembered.
	Number    uint64    `json:"n"`
	At        time.Time `json:"at"` // of the acknowledgement
	ID        string    `json:"id"`
	Key       *string   `json:"key"` // nil for none
	Type      string    `json:"type,omitempty"`
	Table     string    `json:"table,omitempty"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"` // -1: none
	Offset    int64     `json:"offset"`
	// LatencySeconds is from the commit to the acknowledgement, by two machines'
	// clocks; nil: the commit's time is not known.
	LatencySeconds *float64 `json:"latency_seconds,omitempty"`
	Payload        string   `json:"payload,omitempty"`

	// Of a bad event: its outcome, and why.
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Recent remembers the last events for readers, as copies: the last event of each batch,
// or more while Watch asks. It is safe for concurrent use; a nil Recent remembers
// nothing.
type Recent struct {
	typeHeader string
	payloads   bool
	anonymous  bool
	watchers   atomic.Int64

	mu              sync.Mutex
	number          uint64
	events, rejects []Seen
}

// NewRecent returns a Recent without events. typeHeader is the header holding an event's
// type. payloads asks for copies of payloads, too.
func NewRecent(typeHeader string, payloads bool) *Recent {
	return &Recent{typeHeader: typeHeader, payloads: payloads}
}

// Anonymous has Last tell no id. Call before the first event.
func (r *Recent) Anonymous() { r.anonymous = true }

// Watch asks for more of each batch, until stop is called.
func (r *Recent) Watch() (stop func()) {
	r.watchers.Add(1)
	return func() { r.watchers.Add(-1) }
}

// After returns everything remembered after the event with the number, oldest
// first: good events and bad ones.
func (r *Recent) After(number uint64) (events, rejects []Seen) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return after(r.events, number), after(r.rejects, number)
}

// after returns a copy.
func after(all []Seen, number uint64) (some []Seen) {
	for _, s := range all {
		if s.Number > number {
			some = append(some, s)
		}
	}
	return some
}

// published is called for each batch. There is at least one event.
func (r *Recent) published(events []*transform.Event) {
	if r == nil {
		return
	}
	few := 1
	if r.watchers.Load() > 0 {
		few = ofBatch
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range events[max(0, len(events)-few):] {
		r.events = r.append(r.events, recentEvents, r.seen(ev, now))
	}
}

func (r *Recent) rejected(ev *transform.Event, bad *transform.BadEvent, outcome string) {
	if r == nil {
		return
	}
	s := r.seen(ev, time.Now())
	s.Outcome, s.Reason, s.Error = outcome, string(bad.Reason), cut([]byte(bad.Error()), shownPayload)
	s.Offset = -1 // the dead letter's is in another topic
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rejects = r.append(r.rejects, recentRejects, s)
}

// append drops the oldest of most events, without a move of the others for each. The caller
// holds mu.
func (r *Recent) append(all []Seen, most int, s Seen) []Seen {
	r.number++
	s.Number = r.number
	if len(all) == most {
		all[0] = Seen{} // to be collected while the array is in use
		all = all[1:]
	}
	return append(all, s)
}

// seen copies the event for readers: its memory is given back afterwards.
func (r *Recent) seen(ev *transform.Event, now time.Time) Seen {
	rec := &ev.Record
	s := Seen{At: now, ID: ev.Name(), Table: ev.Table, Topic: cut([]byte(rec.Topic), shownTopic), Partition: rec.Partition, Offset: rec.Offset}
	plainKey, payload := ev.Plain()
	if plainKey != nil {
		key := cut(plainKey, shownText)
		s.Key = &key
	}
	for _, h := range rec.Headers {
		if h.Key == r.typeHeader {
			s.Type = cut(h.Value, shownText)
		}
	}
	if !ev.CommitTime.IsZero() {
		latency := max(0, now.Sub(ev.CommitTime)).Seconds()
		s.LatencySeconds = &latency
	}
	if r.payloads {
		s.Payload = cut(payload, shownPayload)
	}
	return s
}

// cut copies a text for readers: at most so many bytes.
func cut(text []byte, most int) string {
	if len(text) <= most && utf8.Valid(text) {
		return string(text)
	}
	return strings.ToValidUTF8(string(text[:min(len(text), most)]), "·") + "…"
}
