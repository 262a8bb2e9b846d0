package transform

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// PartitionByKey in Event.Record.Partition leaves the choice of partition to
// the sink's partitioner.
const PartitionByKey int32 = -1

// Warning is an operator's news of a published event, fit for a metric's label. The
// empty Warning is none.
type Warning string

// The warnings.
const (
	// WarningNotExpanded: under json_expanded the payload was published as a
	// JSON string, because the text does not start with { or [, or because the
	// members of an array differ in type.
	WarningNotExpanded Warning = "payload_not_expanded"
	// WarningTimeReplaced: the topic would have refused, or soon deleted, a record
	// with the time asked for. The record has the time of the publication, and the
	// time asked for is in the header cdc-timestamp.
	WarningTimeReplaced Warning = "timestamp_replaced"
	// WarningNoTrace: the tracing column holds no valid traceparent, or the headers
	// hold an invalid traceparent or tracestate; the event was published without it.
	WarningNoTrace Warning = "unreadable_trace_context"
)

// Event is an outbox row on the way to Kafka: the record, and the row's origin.
// Router.Route writes the Event, read-only afterwards except for SetTotal, Retime, Encode
// and Refer, and for the fields the sink and franz-go set on the record when produced.
type Event struct {
	Record     kgo.Record
	Table      string // schema.table, each quoted where SQL needs it
	ID         []byte // the event id column's text; nil for NULL
	Position   pg.Position
	XID        uint32
	CommitTime time.Time
	// Asked is the requested time of the record; zero: the time of publication.
	// The sink writes the time into the record.
	Asked   time.Time
	Warning Warning
	// Span is of the publication; nil for none.
	Span *Span

	encoded    bool
	referred   bool
	renewed    bool
	key, value []byte // of the record before Encode or, without, before Refer

	pooled *pooledEvent // the memory of the event; nil where Release has no effect
	made   int          // bytes of memory made for it, beside pooled
}

// Release gives the event's memory back to the event's router, for another event.
// The event, the Record and its Headers must not be used afterwards. The bytes they
// referred to stay unchanged. To be called at most once, from any goroutine.
// Forgetting the call costs reuse only.
func (e *Event) Release() {
	if e.pooled == nil {
		return
	}
	pooled, pool := e.pooled, e.pooled.pool
	*pooled = pooledEvent{pool: pool}
	pool.Put(pooled)
}

// Size is the number of bytes in the record: key, value and headers.
func (e *Event) Size() int64 {
	n := len(e.Record.Key) + len(e.Record.Value)
	for _, h := range e.Record.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return int64(n)
}

// SetTotal makes text, which is kept, the last header of the record,
// cdc-tx-total. Not to be called for a record on the way to a broker.
func (e *Event) SetTotal(text []byte) {
	if last := len(e.Record.Headers) - 1; last >= 0 && e.Record.Headers[last].Key == headerTotal {
		e.Record.Headers[last].Value = text
		return
	}
	e.Record.Headers = append(e.Record.Headers, kgo.RecordHeader{Key: headerTotal, Value: text})
}

// SetMark adds the header, one of HeaderRepair, HeaderReplay and HeaderRedrive, with
// the text, which is kept. Not to be called for a record on the way to a broker.
func (e *Event) SetMark(header string, text []byte) {
	e.Record.Headers = append(e.Record.Headers, kgo.RecordHeader{Key: header, Value: text})
}

// Encode gives the record key and value in the form on the wire, and remembers those of the
// row. Not to be called twice.
func (e *Event) Encode(key, value []byte) {
	e.encoded, e.key, e.value = true, e.Record.Key, e.Record.Value
	e.Record.Key, e.Record.Value = key, value
}

// Encoded reports whether the record has the form on the wire.
func (e *Event) Encoded() bool { return e.encoded }

// Plain returns the key and the value of the row, also of an event encoded or kept elsewhere.
func (e *Event) Plain() (key, value []byte) {
	if e.encoded || e.referred {
		return e.key, e.value
	}
	return e.Record.Key, e.Record.Value
}

// Time is the event's own time: the time asked for, or the commit's.
func (e *Event) Time() time.Time {
	if e.Asked.IsZero() {
		return e.CommitTime
	}
	return e.Asked
}

// Retime has the record published with the time of the publication, and keeps
// the time asked for as a header; false: no time was asked for. Not to be called
// for a record on the way to a broker.
func (e *Event) Retime() bool {
	if e.Asked.IsZero() {
		return false
	}
	at := len(e.Record.Headers)
	if at > 0 && e.Record.Headers[at-1].Key == headerTotal { // stays the last
		at--
	}
	e.Record.Headers = slices.Insert(slices.Clip(e.Record.Headers), at, kgo.RecordHeader{Key: HeaderAsked, Value: appendTime(nil, e.Asked)})
	e.Asked, e.Warning = time.Time{}, WarningTimeReplaced
	return true
}

// nameBytes is the length of a shown id: a column may hold anything.
const nameBytes = 200

// Name is the event's id for logs and errors, cut off if very long. Line breaks and
// the like are escaped: they would pass for the program's own words.
func (e *Event) Name() string {
	name := string(e.ID)
	if len(e.ID) > nameBytes {
		name = strings.ToValidUTF8(string(e.ID[:nameBytes]), "") + "…"
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		quoted := strconv.Quote(name)
		name = quoted[1 : len(quoted)-1]
	}
	return name
}

// Memory is about the number of bytes of memory made for the event: the event's
// own, and key, value and headers if not the row's. All of the row's bytes are
// kept beside.
func (e *Event) Memory() int64 { return pooledMemory + int64(e.made) }
