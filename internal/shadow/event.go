package shadow

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Event is an event of ours.
type Event struct {
	// Record is the record that would be written. A negative partition leaves the
	// choice to the key. A time of zero is that of writing.
	Record *kgo.Record
	At     pg.Position
	// Bad is the reason against a publication here; empty: there is none.
	Bad string
}

// entryBytes is about the memory of an event without its record.
const entryBytes = 250

// entry is an event of ours in memory.
type entry struct {
	Event // without the record, once matched
	id    sum
	key   sum    // of topic and key; zero: no key
	there sum    // of Debezium's record, once matched
	next  *entry // with the same identity, later
	bytes int64  // at present
}

func (e *entry) matched() bool { return e.Record == nil }

// twins are the events of an identity, in our order. Those with a record come first.
type twins struct {
	first, last *entry
	open        *entry // the first without a record; nil: all have one
}

func (t *twins) add(e *entry) {
	if t.first == nil {
		t.first = e
	} else {
		t.last.next = e
	}
	if t.last = e; t.open == nil {
		t.open = e
	}
}

// drop removes the first, and tells whether none is left.
func (t *twins) drop() bool {
	if t.open == t.first {
		t.open = t.first.next
	}
	t.first = t.first.next
	return t.first == nil
}

// sum stands for bytes.
type sum [16]byte

// sumOf tells a null from an empty text, and two parts from their concatenation.
func sumOf(parts ...[]byte) (s sum) {
	hash := sha256.New()
	for _, p := range parts {
		length := int64(len(p))
		if p == nil {
			length = -1
		}
		_, _ = hash.Write(binary.LittleEndian.AppendUint64(nil, uint64(length))) // never fails
		_, _ = hash.Write(p)
	}
	copy(s[:], hash.Sum(nil))
	return s
}

// whole is the sum of a record, but for headers that differ at each start of Debezium.
func whole(r *kgo.Record) sum {
	parts := [][]byte{[]byte(r.Topic), r.Key, r.Value}
	for _, h := range stable(r.Headers) {
		parts = append(parts, []byte(h.Key), h.Value)
	}
	return sumOf(parts...)
}

// size is about the memory of a record.
func size(r *kgo.Record) int64 {
	n := 200 + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += 40 + len(h.Key) + len(h.Value)
	}
	return int64(n)
}

// identity is the event's id, or, by content, topic, key and value, without the numbers of
// schemas; ok is false for a record without an id.
func (c *Comparison) identity(r *kgo.Record) (id sum, ok bool) {
	if c.opts.ByContent {
		return sumOf([]byte(r.Topic), unframed(r.Key, c.opts.FramedKeys), unframed(r.Value, c.opts.FramedValues)), true
	}
	text, _ := transform.Header(r.Headers, transform.HeaderID)
	if text == nil {
		return id, false
	}
	return sumOf(text), true
}
