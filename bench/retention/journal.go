package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
)

// keys is the number of aggregates; each has a single writer.
const keys = 10_000

// journal knows when each event was committed and received. Events are numbered from 0
// in the order of their beginnings.
type journal struct {
	began    time.Time
	payload  string
	next     atomic.Int64
	acked    []atomic.Int64 // when the COMMIT was answered, since began; 0: not answered
	received []atomic.Int64 // when the consumer had the event; 0: not yet
	ledger   checker.Ledger

	mu      sync.Mutex
	records []checker.Record
}

func newJournal(o options) *journal {
	// Restarts, the end and a writer catching up make the traffic a little longer.
	room := int(o.eventsPerSecond()*(2*o.phase().Seconds()*float64(o.pairs)*1.2+120)) + 1000
	return &journal{
		began:    time.Now(),
		payload:  `{"note": "` + strings.Repeat("x", max(0, o.payload-12)) + `"}`,
		acked:    make([]atomic.Int64, room),
		received: make([]atomic.Int64, room),
	}
}

// now is never 0.
func (j *journal) now() int64 { return int64(time.Since(j.began)) + 1 }

// idPrefix makes the number of an event a UUID.
const idPrefix = "00000000-0000-4000-8000-"

func eventID(n int64) string { return fmt.Sprintf(idPrefix+"%012x", n) }

func eventNumber(id string) (int64, error) {
	text, ok := strings.CutPrefix(id, idPrefix)
	if !ok {
		return 0, fmt.Errorf("event %q is not ours", id)
	}
	return strconv.ParseInt(text, 16, 64)
}

// event is the expected event of the number.
func (j *journal) event(n int64, key string) checker.Event {
	id := eventID(n)
	return checker.Event{ID: id, Topic: topic, Key: key, Value: j.payload,
		Headers: []checker.Header{{Key: "id", Value: id}, {Key: "eventType", Value: eventType}}}
}

const eventType = "OrderPlaced"

// known is how many events may have been begun.
func (j *journal) known() int64 { return min(j.next.Load(), int64(len(j.acked))) }

// missing is how many committed events the consumer does not have yet.
func (j *journal) missing() (n int) {
	for i := range j.known() {
		if j.acked[i].Load() != 0 && j.received[i].Load() == 0 {
			n++
		}
	}
	return n
}

// latencies are of the events committed in the time.
func (j *journal) latencies(from, to int64) []time.Duration {
	var list []time.Duration
	for i := range j.known() {
		acked, received := j.acked[i].Load(), j.received[i].Load()
		if acked >= from && acked < to && received != 0 {
			list = append(list, max(0, time.Duration(received-acked)))
		}
	}
	return list
}
