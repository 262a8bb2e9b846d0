package transform

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// payloadMember is the member of an envelope holding the payload; the name is
// not an option in Debezium either.
const payloadMember = "payload"

// value sets the record's value.
//
// Without an envelope, raw is the payload's text (StringConverter; bytea as the
// bytes) and json the output of Connect's JsonConverter for the column, see
// appendJSON. NULL stays a null value in raw and is the JSON null otherwise, as
// with those two converters.
func (b *builder) value() {
	c, v := b.plan.payload, b.get(b.plan.payload)
	switch {
	case b.router.event.TombstoneOnEmptyPayload && b.blank(c, v):
	case b.router.event.PayloadFormat == FormatRaw && !b.router.envelope:
		b.event.Record.Value = b.form(c, connectPayload)
	case b.router.event.Debezium.ValueSchemas:
		b.setJSON(b.appendWithSchema)
	default:
		b.setJSON(b.appendPlain)
	}
}

// setJSON sets the value to write's output; after an error, to the payload's
// own text.
func (b *builder) setJSON(write func([]byte) ([]byte, error)) {
	data := b.get(b.plan.payload).Data
	value, err := write(make([]byte, 0, len(data)+len(data)/8+64+b.plan.schemaBytes))
	switch {
	case err == nil:
		if b.router.event.Compat == CompatDebezium {
			value = escapeAstral(value)
		}
		b.event.Record.Value = value
		b.event.made += cap(value)
		return
	case errors.Is(err, errNotUTF8):
		b.reject(ReasonInvalidUTF8, err)
	case errors.Is(err, errNotJSON):
		b.reject(ReasonInvalidJSON, err)
	default:
		b.reject(ReasonUnreadableContents, err)
	}
	b.event.Record.Value = data
}

// appendPlain appends the payload, or the envelope.
func (b *builder) appendPlain(dst []byte) ([]byte, error) {
	if b.router.envelope {
		dst = append(dst, `{"`+payloadMember+`":`...)
	}
	dst, _, err := b.appendPayload(dst)
	if err != nil || !b.router.envelope {
		return dst, err
	}
	return b.appendEnvelope(dst)
}

// appendWithSchema appends appendPlain's JSON within an object with the schema, as a
// JsonConverter with schemas.enable.
func (b *builder) appendWithSchema(dst []byte) ([]byte, error) {
	payload, of, err := b.appendPayload(again(b.router.payload))
	if err != nil {
		return nil, err
	}
	b.router.payload = payload
	dst, err = b.appendValueSchema(append(dst, `{"schema":`...), of)
	if err != nil {
		return nil, err
	}
	b.plan.schemaBytes = len(dst)
	dst = append(dst, `,"payload":`...)
	if !b.router.envelope {
		return append(append(dst, payload...), '}'), nil
	}
	dst = append(append(dst, `{"`+payloadMember+`":`...), payload...)
	if dst, err = b.appendEnvelope(dst); err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

// appendEnvelope appends the additional columns of an envelope, in the order of the
// configuration, and ends the object.
func (b *builder) appendEnvelope(dst []byte) (_ []byte, err error) {
	for _, member := range b.plan.envelope {
		dst = append(dst, ',')
		dst = appendQuoted(dst, member.alias)
		dst = append(dst, ':')
		if dst, err = member.appendJSON(dst, b.get(member.column)); err != nil {
			return nil, fmt.Errorf("column %q: %w", member.name, err)
		}
	}
	return append(dst, '}'), nil
}

// appendPayload appends the payload as JSON, expanded if asked for and possible. of is
// the schema of expanded JSON under CompatDebezium, nil for the column's.
func (b *builder) appendPayload(dst []byte) (_ []byte, of *shape, err error) {
	c, v := b.plan.payload, b.get(b.plan.payload)
	if b.router.event.PayloadFormat == FormatJSONExpanded && v.Kind != pg.Null {
		out, of, err := b.appendExpanded(dst, v)
		if err == nil || errors.Is(err, errNotJSON) {
			return out, of, err
		}
		if errors.Is(err, errNoSchema) {
			of = untyped
		}
		b.warn(WarningNotExpanded)
		dst, err = c.appendJSON(dst, v)
		return dst, of, err
	}
	if dst, err = c.appendJSON(dst, v); err != nil {
		return nil, nil, fmt.Errorf("column %q: %w", c.name, err)
	}
	return dst, nil, nil
}

// errNotJSON is a payload that starts like JSON but is invalid.
var errNotJSON = errors.New("the payload is not valid JSON")

// appendExpanded expands a payload of text starting like an object or array.
// With any error but errNotJSON it stays a string.
func (b *builder) appendExpanded(dst []byte, v pg.Value) ([]byte, *shape, error) {
	opts := expandOptions{
		keepNull:       b.router.event.NullBehavior == NullOptionalBytes,
		keepEmptyArray: b.router.event.EmptyArrayBehavior == EmptyArrayOptionalString,
	}
	if b.router.event.Compat == CompatDebezium {
		return b.appendShaped(dst, v, opts)
	}
	if b.plan.payload.oid == pgtype.ByteaOID {
		return nil, nil, errNotExpandable
	}
	out, err := expand(dst, v.Data, opts)
	if errors.Is(err, errNotJSON) && b.router.event.InvalidJSON == InvalidJSONPublish {
		return nil, nil, errNotExpandable
	}
	return out, nil, err
}

// blank is blank of the payload in the form published.
func (b *builder) blank(c column, v pg.Value) bool {
	if c.as == nil || v.Kind != pg.Text {
		return blank(v)
	}
	value, err := c.value(v.Data)
	text, isText := value.(string)
	return err == nil && (value == nil || isText && blank(pg.Value{Kind: pg.Text, Data: []byte(text)}))
}

// blank reports whether a payload counts as empty: NULL, or nothing but
// characters up to the space, as for Java's String.trim. Bytes are never blank:
// the text of empty bytea is \x.
func blank(v pg.Value) bool {
	switch v.Kind {
	case pg.Null:
		return true
	case pg.Binary:
		return false
	}
	for _, c := range v.Data {
		if c > ' ' {
			return false
		}
	}
	return true
}
