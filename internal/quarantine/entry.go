package quarantine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// header is the first header of every record of ours; its value is JSON.
const header = "cdc-quarantine"

// The beginnings of the keys.
const (
	eventPrefix   = "event/"
	commandPrefix = "command/"
)

// Entry is a parked event.
type Entry struct {
	// Number is the event's place among all parked events.
	Number uint64    `json:"number"`
	Parked time.Time `json:"parked"`
	// Reason is why the event cannot be published; "" for a good event behind another.
	Reason transform.Reason `json:"reason,omitempty"`
	Error  string           `json:"error,omitempty"`
	// Whole is set where the record could be made, and Kafka did not take it.
	Whole bool   `json:"whole"`
	Table string `json:"table"`
	ID    []byte `json:"id"` // nil for NULL
	LSN   pg.LSN `json:"lsn"`
	Seq   uint32 `json:"seq"`
	XID   uint32 `json:"xid"`
	// Committed and Asked are times of transform.Event; nil: none.
	Committed *time.Time `json:"committed,omitempty"`
	Asked     *time.Time `json:"asked,omitempty"`
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Key       []byte     `json:"key"` // nil: none
	Null      bool       `json:"null,omitempty"`
	// Rules are the settings behind topic and key: see transform.Rules. "": not known.
	Rules string `json:"rules,omitempty"`

	// Value and Headers are those of the record itself.
	Value   []byte             `json:"-"`
	Headers []kgo.RecordHeader `json:"-"`

	unit     Unit
	identity identity
}

// newEntry parks the event; bad is nil for a good event.
func newEntry(number uint64, ev *transform.Event, bad *transform.BadEvent, whole bool, now time.Time, rules string) *Entry {
	key, value := ev.Plain()
	e := &Entry{
		Rules: rules, Number: number, Parked: now.UTC(), Whole: whole || bad == nil, Table: ev.Table, ID: ev.ID,
		LSN: ev.Position.CommitLSN, Seq: ev.Position.Seq, XID: ev.XID, Committed: optional(ev.CommitTime), Asked: optional(ev.Asked),
		Topic: ev.Record.Topic, Partition: ev.Record.Partition, Key: key, Null: value == nil,
		Value: value, Headers: ev.PlainHeaders(),
	}
	if bad != nil {
		e.Reason, e.Error = bad.Reason, bad.Err.Error()
	}
	e.identify()
	return e
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// identify finds unit and identity.
func (e *Entry) identify() {
	ev := e.Event()
	unit, alone := UnitOf(ev)
	if alone {
		e.unit = Unit(sum([]byte(strconv.FormatUint(e.Number, 10))))
		unit = Unit{}
	} else {
		e.unit = unit
	}
	e.identity = identify(unit, ev)
}

// Unit is the event's.
func (e *Entry) Unit() Unit { return e.unit }

// Event is the event as it would be published.
func (e *Entry) Event() *transform.Event {
	ev := &transform.Event{
		Table: e.Table, ID: e.ID, Position: pg.Position{CommitLSN: e.LSN, Seq: e.Seq}, XID: e.XID,
		Record: kgo.Record{Topic: e.Topic, Partition: e.Partition, Key: e.Key, Value: e.Value, Headers: e.Headers},
	}
	if e.Committed != nil {
		ev.CommitTime = *e.Committed
	}
	if e.Asked != nil {
		ev.Asked = *e.Asked
	}
	return ev
}

// record is the event that keeps the entry in the topic.
func (e *Entry) record(topic string) (*transform.Event, error) {
	meta, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("write parked event %d: %w", e.Number, err)
	}
	value := e.Value
	if value == nil { // no value would settle the entry
		value = []byte{}
	}
	rec := own(topic, eventPrefix+strconv.FormatUint(e.Number, 10), value)
	rec.Record.Headers = append([]kgo.RecordHeader{{Key: header, Value: meta}}, e.Headers...)
	rec.Table, rec.ID, rec.Position = e.Table, e.ID, pg.Position{CommitLSN: e.LSN, Seq: e.Seq}
	return rec, nil
}

// own is an event for the topic of the quarantine.
func own(topic, key string, value []byte) *transform.Event {
	return &transform.Event{Record: kgo.Record{Topic: topic, Key: []byte(key), Value: value}}
}

// settled is the event that ends the entry.
func settled(topic string, number uint64) *transform.Event {
	return own(topic, eventPrefix+strconv.FormatUint(number, 10), nil)
}

// numberOf is the number in the key of a parked event's record; ok is false for a record of
// others.
func numberOf(rec *kgo.Record) (number uint64, ok bool) {
	text, ok := bytes.CutPrefix(rec.Key, []byte(eventPrefix))
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(string(text), 10, 64)
	return number, err == nil
}

// ReadEntry reads a record of the topic; ok is false for other records. The bytes stay the
// record's.
func ReadEntry(rec *kgo.Record) (e *Entry, ok bool) {
	number, ok := numberOf(rec)
	e = new(Entry)
	if !ok || !meta(rec, e) || e.Number != number {
		return nil, false
	}
	if e.Headers = rec.Headers[1:]; len(e.Headers) == 0 {
		e.Headers = nil
	}
	if e.Value = rec.Value; e.Null {
		e.Value = nil
	}
	e.identify()
	return e, true
}

// meta reads the header of ours; false: the record is of others.
func meta(rec *kgo.Record, into any) bool {
	return rec.Value != nil && len(rec.Headers) > 0 && rec.Headers[0].Key == header && json.Unmarshal(rec.Headers[0].Value, into) == nil
}
