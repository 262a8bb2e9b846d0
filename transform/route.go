package transform

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// pooledEvent makes an event and the usual headers one allocation. They are not
// taken from a larger slab: a single event in flight would keep the payloads of
// the whole slab alive, beyond every bound on bytes. A pooledEvent is used again
// after the event's release, because events would be most of the garbage.
type pooledEvent struct {
	event   Event
	headers [builtInHeaders]kgo.RecordHeader
	pool    *sync.Pool // to go back to
}

// pooledMemory is the memory of a pooledEvent, and headerMemory that of one
// more header.
var (
	pooledMemory = int64(reflect.TypeFor[pooledEvent]().Size())
	headerMemory = int(reflect.TypeFor[kgo.RecordHeader]().Size())
)

// Route returns the event of an inserted row. The event refers to the row's
// bytes, but not to the row or its Values.
//
// The error, if any, is a *BadEvent: the row cannot become a record. The event is
// then as complete as possible, for a dead letter, and never nil. If a payload
// could not be converted, the record's value is the column's own text. If the
// table at the time of writing lacks a column (Bind), the value is the whole row
// as JSON.
func (r *Router) Route(row *pg.Row) (*Event, error) {
	p := r.plan(row.Relation)
	b, pooled := r.begin(p, row)
	if len(row.Values) != len(p.rel.Columns) {
		b.reject(ReasonUnreadableContents, fmt.Errorf("the row has %d values, its table %d columns", len(row.Values), len(p.rel.Columns)))
		return b.event, b.bad
	}
	if p.unfit != nil {
		b.raw()
		return b.event, b.bad
	}
	return b.build(pooled)
}

// builder fills an event. The parts go on after a problem, so the event of a
// dead letter is as whole as possible.
type builder struct {
	router *Router
	plan   *plan
	values []pg.Value
	event  *Event
	bad    *BadEvent
}

// begin makes an event with the origin alone.
func (r *Router) begin(p *plan, row *pg.Row) (builder, *pooledEvent) {
	pooled, ok := r.pool.Get().(*pooledEvent)
	if !ok {
		pooled = &pooledEvent{pool: &r.pool}
	}
	pooled.event = Event{Table: p.table, Position: row.Position, XID: row.XID, CommitTime: row.CommitTime, pooled: pooled}
	pooled.event.Record.Partition = PartitionByKey
	if r.event.RecordTime == RecordTimeCommit {
		pooled.event.Asked = row.CommitTime
	}
	return builder{router: r, plan: p, values: row.Values, event: &pooled.event}, pooled
}

// build fills the event from the values, as many as the plan's table has
// columns.
func (b *builder) build(pooled *pooledEvent) (*Event, error) {
	b.event.ID = b.text(b.plan.id)
	b.key()
	b.topic()
	b.value()
	b.partition()
	b.timestamp()
	b.headers(pooled.headers[:0])
	if b.bad != nil {
		return b.event, b.bad
	}
	return b.event, nil
}

// reject makes the event a bad one; the first reason stays.
func (b *builder) reject(reason Reason, err error) {
	if b.bad == nil {
		b.bad = &BadEvent{Reason: reason, Err: err}
	}
}

// warn adds a warning to the event; the first stays.
func (b *builder) warn(w Warning) {
	if b.event.Warning == "" {
		b.event.Warning = w
	}
}

// get returns the column's value, NULL where the column is absent or was not
// sent.
func (b *builder) get(c column) pg.Value {
	if !c.present {
		return pg.Value{Kind: pg.Null}
	}
	v := b.values[c.index]
	switch v.Kind {
	case pg.Null:
		if c.compat != nil && c.compat.standard != nil {
			return pg.Value{Kind: pg.Text, Data: c.compat.standard}
		}
	case pg.UnchangedToast:
		b.reject(ReasonUnreadableContents, fmt.Errorf("the value of column %q was not sent", c.name))
		return pg.Value{Kind: pg.Null}
	case pg.Garbled:
		b.reject(ReasonInvalidUTF8, fmt.Errorf("column %q has characters without equivalent in UTF-8", c.name))
		v.Kind = pg.Text
	}
	return v
}

// text returns the column's text form, nil for NULL.
func (b *builder) text(c column) []byte {
	v := b.get(c)
	text, err := c.text(v)
	if err != nil {
		b.reject(ReasonUnreadableContents, fmt.Errorf("column %q: %w", c.name, err))
	}
	if c.oid == pgtype.ByteaOID && v.Kind == pg.Text { // decoded
		b.event.made += len(text)
	}
	return text
}

// form returns the column's text or, of a column with a conversion, what write makes of
// the value; nil for NULL.
func (b *builder) form(c column, write func([]byte, connectValue) []byte) []byte {
	if c.as == nil {
		return b.text(c)
	}
	v := b.get(c)
	if v.Kind != pg.Text { // NULL, or the bytes of a message
		return b.text(c)
	}
	value, err := c.value(v.Data)
	if err != nil {
		b.reject(ReasonUnreadableContents, fmt.Errorf("column %q: %w", c.name, err))
		return v.Data
	}
	if value == nil {
		return nil
	}
	out := write([]byte{}, value)
	b.event.made += cap(out)
	return out
}

var errEmptyKey = errors.New("without a key its order among others would be lost; event.null_key: publish allows it")

func (b *builder) key() {
	var empty bool
	if b.router.event.KeyFormat == KeyJSON {
		empty = len(b.get(b.plan.key).Data) == 0
		b.event.Record.Key = b.jsonKey()
	} else {
		b.event.Record.Key = b.form(b.plan.key, connectText)
		empty = len(b.event.Record.Key) == 0
	}
	if empty && b.router.event.NullKey != NullKeyPublish {
		b.reject(ReasonNullKey, fmt.Errorf("column %q is NULL or empty: %w", b.plan.key.name, errEmptyKey))
	}
}

func (b *builder) topic() {
	v := b.get(b.plan.route)
	if v.Kind == pg.Null {
		b.reject(ReasonNullRoute, fmt.Errorf("column %q is NULL, so there is no topic", b.plan.route.name))
		return
	}
	name, err := b.router.topics.lookup(v.Data)
	b.event.Record.Topic = name
	if err != nil {
		b.reject(ReasonIllegalTopic, err)
	}
}

// partition places the record by the additional column for the partition; NULL
// leaves the choice to the partitioner. Only the sink knows the topic's partitions.
func (b *builder) partition() {
	v := b.get(b.plan.partition)
	if v.Kind == pg.Null {
		return
	}
	n, err := strconv.ParseInt(string(v.Data), 10, 32)
	if err != nil || n < 0 {
		b.reject(ReasonPartitionRange, fmt.Errorf("column %q is %q, no partition number", b.plan.partition.name, v.Data))
		return
	}
	b.event.Record.Partition = int32(n)
}

func (b *builder) timestamp() {
	v := b.get(b.plan.timestamp)
	if v.Kind == pg.Null {
		return
	}
	if b.plan.perMilli != 0 {
		b.debeziumTime(v)
		return
	}
	t, err := b.router.moment.parse(b.plan.timestamp.oid, v.Data)
	if err != nil {
		b.reject(ReasonInvalidTimestamp, fmt.Errorf("column %q is %q: %w", b.plan.timestamp.name, v.Data, err))
		return
	}
	b.event.Asked = t
}
