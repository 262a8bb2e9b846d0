// Package envelope is the content of a logical message carrying an event: what
// a row of an outbox table would hold, for a writer without a table
// (pg_logical_emit_message). The producer library writes it, the SQL function
// outbox_emit writes it, the connector reads it.
//
// The format, version 1 (all integers big-endian):
//
//	byte   format: 0x01 the payload is text, 0x02 the payload is bytes
//	six times, for id, aggregatetype, aggregateid, type, payload, headers:
//	  int32  length in bytes, -1 for NULL
//	  bytes
//
// All fields but a payload of bytes are UTF-8 text. headers is a JSON object of
// strings. Text and bytes are told apart because a record may show them
// differently, as it does for columns of type text and bytea: under
// event.payload_format json a payload of bytes is base64. A payload of JSON is
// text, also if the column would be jsonb.
//
// Invariants:
//
//  1. Decode takes exactly what Append writes: decoding and appending again
//     gives the same bytes.
//  2. Decode copies nothing and allocates nothing; it never panics.
//  3. A change of the format gets a format byte of its own. Older connectors
//     refuse it; they do not misread it.
//
// Non-goals: judging the values. Whether a key may be NULL, text is UTF-8 and
// headers are an object is transform's to say, as it is for a table.
package envelope

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The format bytes.
const (
	FormatText  = 0x01 // the payload is text
	FormatBytes = 0x02 // the payload is bytes
)

// MaxSize is PostgreSQL's limit for a value (MaxAllocSize), and so for the
// content of a message.
const MaxSize = 1<<30 - 1

const (
	fieldCount = 6
	lengthSize = 4
	null       = -1
)

// The errors of Decode and Append; they come wrapped with details.
var (
	ErrFormat    = errors.New("unknown format")
	ErrTruncated = errors.New("content ends too early")
	ErrTrailing  = errors.New("bytes follow the last field")
	ErrLength    = errors.New("a field has a negative length")
	ErrTooLarge  = errors.New("content is larger than PostgreSQL takes")
)

// names are the fields in their order.
var names = [fieldCount]string{"id", "aggregatetype", "aggregateid", "type", "payload", "headers"}

// Message is the event in an envelope. A nil field is NULL, an empty one is not.
type Message struct {
	ID            []byte
	AggregateType []byte
	AggregateID   []byte
	Type          []byte
	Payload       []byte
	Headers       []byte // a JSON object of strings
	// Binary tells that Payload is bytes as in a bytea column, not text.
	Binary bool
}

// fields lists the fields in their order.
func (m *Message) fields() [fieldCount]*[]byte {
	return [...]*[]byte{&m.ID, &m.AggregateType, &m.AggregateID, &m.Type, &m.Payload, &m.Headers}
}

// Size is the number of bytes that Append adds.
func (m *Message) Size() int {
	n := 1 + fieldCount*lengthSize
	for _, f := range m.fields() {
		n += len(*f)
	}
	return n
}

// Append appends the envelope to dst, which must not overlap the fields. The
// only error is ErrTooLarge; dst is returned unchanged then.
func (m *Message) Append(dst []byte) ([]byte, error) {
	if n := m.Size(); n > MaxSize {
		return dst, fmt.Errorf("encode envelope: %w: %d bytes", ErrTooLarge, n)
	}
	format := byte(FormatText)
	if m.Binary {
		format = FormatBytes
	}
	dst = append(dst, format)
	for _, f := range m.fields() {
		length := int32(null)
		if *f != nil {
			length = int32(len(*f))
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(length))
		dst = append(dst, *f...)
	}
	return dst, nil
}

// Encode returns the envelope in new memory, as Append writes it.
func Encode(m *Message) ([]byte, error) {
	size := m.Size()
	if size > MaxSize {
		return nil, fmt.Errorf("encode envelope: %w: %d bytes", ErrTooLarge, size)
	}
	return m.Append(make([]byte, 0, size))
}

// Decode reads an envelope into m. The fields are parts of content. On an error
// m holds the fields before the wrong one.
func (m *Message) Decode(content []byte) error {
	*m = Message{}
	if len(content) == 0 {
		return fmt.Errorf("decode envelope: %w: it is empty", ErrTruncated)
	}
	switch content[0] {
	case FormatText:
	case FormatBytes:
		m.Binary = true
	default:
		return fmt.Errorf("decode envelope: %w 0x%02x", ErrFormat, content[0])
	}
	rest := content[1:]
	for i, f := range m.fields() {
		if len(rest) < lengthSize {
			return fmt.Errorf("decode envelope: %w: no length of field %s", ErrTruncated, names[i])
		}
		length := int(int32(binary.BigEndian.Uint32(rest)))
		rest = rest[lengthSize:]
		switch {
		case length == null:
			continue
		case length < null:
			return fmt.Errorf("decode envelope: %w: field %s, %d", ErrLength, names[i], length)
		case length > len(rest):
			return fmt.Errorf("decode envelope: %w: field %s has %d bytes, %d are left", ErrTruncated, names[i], length, len(rest))
		}
		*f, rest = rest[:length:length], rest[length:]
	}
	if len(rest) > 0 {
		return fmt.Errorf("decode envelope: %w: %d", ErrTrailing, len(rest))
	}
	return nil
}
