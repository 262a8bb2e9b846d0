package transform

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

const (
	headerContentType = "content-type"
	attributePrefix   = "ce_"
	headerDataSchema  = "ce_dataschema"
)

var (
	specVersion    = []byte("1.0")
	structuredType = []byte("application/cloudevents+json; charset=UTF-8")
)

// cloudPlan says where in a table's rows the attributes of a CloudEvent are.
type cloudPlan struct {
	eventType  column
	subject    attributeColumn
	own        []attributeColumn // source, time, dataschema, datacontenttype
	extensions []attributeColumn // in the order of the configuration

	source, schema, contentType []byte // where no column has another
	json                        bool   // contentType is JSON
	sure                        bool   // every value is JSON
	binary                      bool   // values are bytes
	keyed                       bool   // keys are text
}

// attributeColumn is a column with the attribute's name, and the header's.
type attributeColumn struct {
	namedColumn
	header string
}

// attribute is an attribute of an event, but for data.
type attribute struct {
	name   string
	header string
	value  []byte
	bare   bool // a number or a bool
}

// mostAttributes is the number of headers without those of extensions.
const mostAttributes = 9

// cloud finds the columns of a CloudEvent.
func (b *binder) cloud(p *plan, o options) *cloudPlan {
	c := &o.event.CloudEvents
	out := &cloudPlan{
		eventType: b.required("event.type", o.event.Type, typeNames),
		subject:   attributeColumn{namedColumn: namedColumn{p.key, attributeSubject}},
		source:    []byte(c.Source), schema: []byte(c.DataSchema), contentType: []byte(c.DataContentType),
	}
	raw := o.event.PayloadFormat == FormatRaw && len(p.envelope) == 0
	out.binary = raw && p.payload.oid == pgtype.ByteaOID
	out.sure = !raw || p.payload.oid == pgtype.JSONOID || p.payload.oid == pgtype.JSONBOID
	out.keyed = p.key.oid != pgtype.ByteaOID || o.event.KeyFormat == KeyJSON
	switch {
	case c.DataContentType != "":
	case c.Encoded != "":
		out.contentType = []byte(c.Encoded)
	case out.binary:
		out.contentType = []byte("application/octet-stream")
	default:
		out.contentType = []byte("application/json")
	}
	out.json = jsonType(string(out.contentType))
	sourced := c.Source != ""
	for _, f := range o.attributes {
		found := attributeColumn{namedColumn{b.optional(attributesKey, f.column, nil), f.name}, attributePrefix + f.name}
		switch f.name {
		case attributeSubject:
			out.subject = found
			continue
		case attributeSource:
			sourced = true
		case attributeTime:
			b.wantType(attributesKey, found.column, "timestamptz or timestamp to be the attribute time", pgtype.TimestamptzOID, pgtype.TimestampOID)
		case attributeSchema, attributeContentType:
		default:
			out.extensions = append(out.extensions, found)
			continue
		}
		out.own = append(out.own, found)
	}
	if !sourced {
		b.errs = append(b.errs, failure.Configf(attributeRemedies[attributeSource], "event.cloudevents.source is empty, and %s has no column for it", b.table))
	}
	return out
}

// cloudEvent makes the record a CloudEvent. A bad event stays as it is, for the dead
// letter.
func (b *builder) cloudEvent() {
	p := b.plan.cloud
	if p == nil || b.bad != nil {
		return
	}
	rec, ev := &b.event.Record, &b.router.event
	structured := ev.CloudEvents.Mode == CloudEventsStructured && (rec.Value != nil || !ev.TombstoneOnEmptyPayload)
	contentType, isJSON := b.attributes(p)
	if rec.Value != nil && isJSON && !p.sure && ev.CloudEvents.Encoded == "" && !json.Valid(rec.Value) {
		b.reject(ReasonInvalidJSON, failure.Configf("set event.cloudevents.datacontenttype to the payload's media type, such as text/plain",
			"the payload is not valid JSON, although its content type is %.100s", contentType))
	}
	switch {
	case b.bad != nil:
	case structured:
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: headerContentType, Value: structuredType})
		rec.Value = b.structured(p, contentType, isJSON)
		b.event.made += cap(rec.Value)
	default:
		if rec.Value != nil {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: headerContentType, Value: contentType})
		}
		for _, a := range b.router.attributes {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: a.header, Value: a.value})
		}
	}
}

// attributes sets the router's attributes to those of the event, and returns that of the
// data's content type.
func (b *builder) attributes(p *cloudPlan) (contentType []byte, isJSON bool) {
	r := b.router
	contentType, isJSON = p.contentType, p.json
	source, schema, at := p.source, p.schema, b.cloudTime()
	for _, c := range p.own {
		value, _ := b.attributeValue(c)
		if len(value) == 0 {
			continue // as NULL: the specification has no empty attribute
		}
		switch c.alias {
		case attributeSource:
			source = value
		case attributeSchema:
			schema = value
		case attributeTime:
			at = value
		case attributeContentType:
			contentType, isJSON = value, jsonType(string(value))
		}
	}
	subject, _ := b.attributeValue(p.subject)
	r.attributes = append(r.attributes[:0],
		attribute{name: "specversion", header: "ce_specversion", value: specVersion},
		attribute{name: attributeTime, header: "ce_time", value: at},
		attribute{name: "id", header: "ce_id", value: b.demanded("id", b.event.ID)},
		attribute{name: attributeSource, header: "ce_source", value: b.demanded(attributeSource, source)},
		attribute{name: "type", header: "ce_type", value: b.demanded("type", b.text(p.eventType))},
		attribute{name: attributeSubject, header: "ce_subject", value: subject},
		attribute{name: attributeSchema, header: headerDataSchema, value: schema},
	)
	if p.keyed {
		key := b.checked("partitionkey", b.event.Record.Key)
		r.attributes = append(r.attributes, attribute{name: "partitionkey", header: "ce_partitionkey", value: key})
	}
	for _, c := range p.extensions {
		value, bare := b.attributeValue(c)
		r.attributes = append(r.attributes, attribute{name: c.alias, header: c.header, value: value, bare: bare})
	}
	r.attributes = slices.DeleteFunc(r.attributes, func(a attribute) bool { return len(a.value) == 0 })
	return contentType, isJSON
}

// demanded is checked for an attribute that every event has.
func (b *builder) demanded(name string, value []byte) []byte {
	if len(value) == 0 {
		b.noEvent(name, errors.New("is NULL or empty, and every CloudEvent has one"))
	}
	return b.checked(name, value)
}

// checked is the value of an attribute, which makes the event bad if unfit.
func (b *builder) checked(name string, value []byte) []byte {
	if len(value) > 0 {
		if err := checkAttribute(name, value); err != nil {
			b.noEvent(name, err)
		}
	}
	return value
}

func (b *builder) noEvent(name string, err error) {
	b.reject(ReasonInvalidCloudEvent, fmt.Errorf("the attribute %s %w", name, err))
}

// cloudTime is the attribute time without a column; nil for an unknown time.
func (b *builder) cloudTime() []byte {
	at := b.event.Time()
	if at.Equal(b.event.CommitTime) {
		_, _, text := b.router.tx.of(b.event)
		return text
	}
	return appendTime(nil, at)
}

// attributeValue is the column's value as an attribute; nil for NULL. bare is a value that
// is no string in JSON.
func (b *builder) attributeValue(c attributeColumn) (value []byte, bare bool) {
	v := b.get(c.column)
	if v.Kind == pg.Null {
		return nil, false
	}
	switch c.oid {
	case pgtype.BoolOID, pgtype.Int2OID, pgtype.Int4OID:
		return b.text(c.column), true
	case pgtype.ByteaOID:
		return base64.StdEncoding.AppendEncode(nil, b.text(c.column)), false
	case pgtype.TimestamptzOID, pgtype.TimestampOID:
		at, err := b.router.moment.parse(c.oid, v.Data)
		if err != nil {
			b.noEvent(c.alias, fmt.Errorf("is of column %q, %q: %w", c.name, v.Data, err))
			return nil, false
		}
		return appendTime(nil, at), false
	}
	return b.checked(c.alias, b.text(c.column)), false
}

// structured is the CloudEvent in JSON. The time comes second, where Timeless looks for it.
func (b *builder) structured(p *cloudPlan, contentType []byte, isJSON bool) []byte {
	data := b.event.Record.Value
	out := make([]byte, 0, len(data)+len(data)/8+512)
	out = append(out, '{')
	for i, a := range b.router.attributes {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendQuoted(out, a.name), ':')
		if a.bare {
			out = append(out, a.value...)
		} else {
			out = appendQuoted(out, a.value)
		}
	}
	if data != nil {
		out = appendQuoted(append(out, `,"datacontenttype":`...), contentType)
		switch {
		case isJSON:
			out = append(append(out, `,"data":`...), data...)
		case p.binary:
			out = append(out, `,"data_base64":"`...)
			out = append(base64.StdEncoding.AppendEncode(out, data), '"')
		case !utf8.Valid(data):
			b.reject(ReasonInvalidUTF8, fmt.Errorf("column %q: %w", b.plan.payload.name, errNotUTF8))
			return data
		default:
			out = appendQuoted(append(out, `,"data":`...), data)
		}
	}
	return append(out, '}')
}

// SetDataSchema makes uri, which is kept, the attribute dataschema of a CloudEvent in
// binary mode without one.
func (e *Event) SetDataSchema(uri []byte) {
	for i, h := range e.Record.Headers {
		switch h.Key {
		case headerDataSchema:
			return
		case "ce_specversion":
			e.Record.Headers = slices.Insert(slices.Clip(e.Record.Headers), i+1, kgo.RecordHeader{Key: headerDataSchema, Value: uri})
			return
		}
	}
}

// Timeless are the record's value and headers without the time of a CloudEvent: the time
// may be the commit's, which a row does not know.
func Timeless(r *kgo.Record) (value []byte, headers []kgo.RecordHeader) {
	value, headers = r.Value, r.Headers
	switch of, _ := Header(headers, headerContentType); {
	case bytes.Equal(of, structuredType):
		const version, time = `{"specversion":"1.0",`, `"time":"`
		rest, found := bytes.CutPrefix(value, []byte(version+time))
		end := bytes.Index(rest, []byte(`",`))
		if found && end >= 0 {
			value = append([]byte(version), rest[end+len(`",`):]...)
		}
	default:
		headers = slices.DeleteFunc(slices.Clone(headers), func(h kgo.RecordHeader) bool { return h.Key == "ce_time" })
	}
	return value, headers
}
