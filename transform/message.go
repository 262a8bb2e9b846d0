package transform

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/base/envelope"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// The columns of a message, as if it were a row: the fields of the envelope in
// their order, under Debezium's names.
var messageColumns = []pg.Column{
	{Name: "id", Type: pgtype.TextOID},
	{Name: "aggregatetype", Type: pgtype.TextOID},
	{Name: "aggregateid", Type: pgtype.TextOID},
	{Name: "type", Type: pgtype.TextOID},
	{Name: "payload", Type: pgtype.TextOID},
	{Name: "headers", Type: pgtype.JSONOID},
}

const messagePayload = 4 // in messageColumns

// messageAliases are the fields' snake-case names in options.
var messageAliases = map[string]string{
	"aggregate_type": "aggregatetype",
	"aggregate_id":   "aggregateid",
	"event_type":     "type",
}

// messages is a Router's plan for messages, as if they were rows.
type messages struct {
	prefix      string
	text, bytes *plan // with a payload of text or bytes; nil: not bound yet
	row         pg.Row
	values      [6]pg.Value
}

// BindMessages checks that the options can be used for messages. With strict,
// an option naming a column unknown to messages is an error; without it, such
// options are for the tables beside them, and messages use the defaults.
// BindMessages returns all faults, joined, as errors of class failure.Config.
func (r *Router) BindMessages(strict bool) error {
	o, unknown := r.messageOptions()
	if strict && unknown != nil {
		return errors.Join(unknown...)
	}
	_, err := bind(messageRelation(pgtype.TextOID), o)
	return err
}

// RouteMessage is Route for a wal.LogicalMessage with the content an envelope:
// the event is that of a row with the fields. The event refers to the content's
// bytes. A content that is no envelope, or a message belonging to no
// transaction, is a BadEvent.
func (r *Router) RouteMessage(msg *wal.Message) (*Event, error) {
	if err := r.bindMessages(msg.Prefix); err != nil {
		return nil, err
	}
	var m envelope.Message
	broken := m.Decode(msg.Content)
	p := r.messages.text
	if m.Binary {
		p = r.messages.bytes
	}
	b, pooled := r.begin(p, r.messages.fill(msg, &m))
	switch {
	case broken != nil:
		b.reject(ReasonUnreadableContents, broken)
		b.event.ID, b.event.Record.Key, b.event.Record.Value = m.ID, m.AggregateID, msg.Content
		return b.event, b.bad
	case msg.NonTransactional:
		b.reject(ReasonNotTransactional, errLoose)
	case !utf8.Valid(m.AggregateID):
		b.reject(ReasonInvalidUTF8, fmt.Errorf("field aggregateid: %w", errNotUTF8))
	case !m.Binary && !utf8.Valid(m.Payload):
		b.reject(ReasonInvalidUTF8, fmt.Errorf("field payload: %w", errNotUTF8))
	}
	return b.build(pooled)
}

var errLoose = errors.New("the message belongs to no transaction, and might be of one that was rolled back; " +
	"emit it with pg_logical_emit_message(true, …)")

// fill makes the message a row.
func (ms *messages) fill(msg *wal.Message, m *envelope.Message) *pg.Row {
	for i, field := range [...][]byte{m.ID, m.AggregateType, m.AggregateID, m.Type, m.Payload, m.Headers} {
		kind := pg.Text
		switch {
		case field == nil:
			kind = pg.Null
		case m.Binary && i == messagePayload:
			kind = pg.Binary
		}
		ms.values[i] = pg.Value{Kind: kind, Data: field}
	}
	ms.row = pg.Row{
		Position:   msg.Row.Position,
		XID:        msg.Row.XID,
		CommitTime: msg.Row.CommitTime,
		Values:     ms.values[:],
	}
	return &ms.row
}

// bindMessages makes the plans for the messages of a prefix.
func (r *Router) bindMessages(prefix string) error {
	ms := &r.messages
	if ms.text != nil && ms.prefix == prefix {
		return nil
	}
	o, _ := r.messageOptions()
	text, err := bind(messageRelation(pgtype.TextOID), o)
	if err != nil {
		return err
	}
	bytes, err := bind(messageRelation(pgtype.ByteaOID), o)
	if err != nil {
		return err
	}
	text.table = "message " + prefix
	bytes.table = text.table
	*ms = messages{prefix: prefix, text: text, bytes: bytes}
	return nil
}

// messageRelation describes messages as if they were in a table.
func messageRelation(payload uint32) *pg.Relation {
	rel := &pg.Relation{Columns: slices.Clone(messageColumns)}
	rel.Columns[messagePayload].Type = payload
	return rel
}

// messageOptions are the options with the names known to messages. Others are
// left out, and returned as errors.
func (r *Router) messageOptions() (o options, unknown []error) {
	o = options{event: r.event, routeBy: r.routeBy, table: "messages"}
	known := func(key, name string, lenient bool) string {
		if alias, ok := messageAliases[name]; ok {
			name = alias
		}
		if slices.ContainsFunc(messageColumns, func(c pg.Column) bool { return c.Name == name }) {
			return name
		}
		if name != "" && !lenient {
			unknown = append(unknown, failure.Configf(
				"leave the option out, or name one of id, aggregatetype, aggregateid, type, payload, headers; what else belongs to an event has its place in headers",
				"%s: messages have no field %q", key, name))
		}
		return ""
	}
	ev := &o.event
	for _, option := range []struct {
		key  string
		name *string
	}{
		{"event.id", &ev.ID}, {"event.key", &ev.Key}, {"event.type", &ev.Type}, {"event.payload", &ev.Payload},
		{"event.timestamp", &ev.Timestamp}, {"event.schema_version", &ev.SchemaVersion}, {"event.tracing", &ev.Tracing},
		{"route.by", &o.routeBy},
	} {
		*option.name = known(option.key, *option.name, false)
	}
	if ev.Headers != HeadersNone {
		ev.Headers = known("event.headers", ev.Headers, false)
	}
	for _, f := range r.fields {
		if f.column = known("event.additional", f.column, ev.AdditionalMissing == MissingIgnore); f.column != "" {
			o.fields = append(o.fields, f)
		}
	}
	for _, f := range r.attributeFields {
		if f.column = known(attributesKey, f.column, false); f.column != "" {
			o.attributes = append(o.attributes, f)
		}
	}
	return o, unknown
}
