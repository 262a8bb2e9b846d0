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
	case b.router.event.TombstoneOnEmptyPayload && blank(v):
	case b.router.envelope:
		b.setJSON(b.appendEnvelope)
	case b.router.event.PayloadFormat == FormatRaw:
		b.event.Record.Value = b.form(c, connectPayload)
	default:
		b.setJSON(b.appendPayload)
	}
}

// setJSON sets the value to write's output; after an error, to the payload's
// own text.
func (b *builder) setJSON(write func([]byte) ([]byte, error)) {
	data := b.get(b.plan.payload).Data
	value, err := write(make([]byte, 0, len(data)+len(data)/8+64))
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

// appendEnvelope appends {"payload":…,"alias":…}, the additional columns in the
// order of the configuration.
func (b *builder) appendEnvelope(dst []byte) ([]byte, error) {
	dst = append(dst, `{"`+payloadMember+`":`...)
	dst, err := b.appendPayload(dst)
	for _, member := range b.plan.envelope {
		if err != nil {
			return nil, err
		}
		dst = append(dst, ',')
		dst = appendQuoted(dst, member.alias)
		dst = append(dst, ':')
		if dst, err = member.appendJSON(dst, b.get(member.column)); err != nil {
			err = fmt.Errorf("column %q: %w", member.name, err)
		}
	}
	return append(dst, '}'), err
}

// appendPayload appends the payload as JSON, expanded where that is asked for
// and possible.
func (b *builder) appendPayload(dst []byte) ([]byte, error) {
	c, v := b.plan.payload, b.get(b.plan.payload)
	if b.router.event.PayloadFormat == FormatJSONExpanded && v.Kind != pg.Null {
		out, err := b.appendExpanded(dst, v)
		if err == nil || errors.Is(err, errNotJSON) {
			return out, err
		}
		b.warn(WarningNotExpanded)
	}
	dst, err := c.appendJSON(dst, v)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", c.name, err)
	}
	return dst, nil
}

// errNotJSON is a payload that starts like JSON but is invalid.
var errNotJSON = errors.New("the payload is not valid JSON")

// appendExpanded expands a payload of text starting like an object or array.
// With any error but errNotJSON it stays a string.
func (b *builder) appendExpanded(dst []byte, v pg.Value) ([]byte, error) {
	if b.plan.payload.oid == pgtype.ByteaOID {
		return nil, errNotExpandable
	}
	out, err := expand(dst, v.Data, expandOptions{
		keepNull:       b.router.event.NullBehavior == NullOptionalBytes,
		keepEmptyArray: b.router.event.EmptyArrayBehavior == EmptyArrayOptionalString,
	})
	if errors.Is(err, errNotJSON) && b.router.event.InvalidJSON == InvalidJSONPublish {
		return nil, errNotExpandable
	}
	return out, err
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
