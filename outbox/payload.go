package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// PayloadType is the type of payloads, and so of their column. For messages
// JSONB and JSON are the same, except for what is refused.
type PayloadType uint8

// The types of payload.
const (
	// JSONB is JSON for a column of type jsonb. PostgreSQL stores the meaning:
	// consumers see other spaces, and members in another order. It refuses some
	// documents of valid JSON, and so does this package: the escape \u0000,
	// half a surrogate pair, numbers beyond those of the type numeric.
	JSONB PayloadType = iota
	// JSON is JSON for a column of type json or text, kept byte for byte.
	JSON
	// Text is any text, for a column of type text.
	Text
	// Bytes are any bytes, such as Avro or Protocol Buffers, for a column of type
	// bytea.
	Bytes
)

// payloadTypes are the names of the types a parameter is cast to. PostgreSQL
// casts json to text and jsonb, too, in an assignment.
var payloadTypes = [...]string{JSONB: "jsonb", JSON: "json", Text: "text", Bytes: "bytea"}

// String returns the type's name in SQL.
func (t PayloadType) String() string {
	if int(t) < len(payloadTypes) {
		return payloadTypes[t]
	}
	return fmt.Sprintf("PayloadType(%d)", uint8(t))
}

var errNotJSON = errors.New("is not valid JSON")

// encode returns the bytes stored, nil for NULL, and how many they become in a
// column of the type.
func (t PayloadType) encode(payload any) (encoded []byte, size int, err error) {
	if s, ok := payload.(string); ok && (t == Text || t == Bytes) {
		payload = []byte(s)
	}
	switch p := payload.(type) {
	case noPayload:
		return nil, 0, nil
	case nil:
		return nil, 0, errNoValue
	case json.RawMessage:
		encoded = p
	case []byte:
		encoded = p
	default:
		if isNil(payload) { // null in JSON
			return nil, 0, errNoValue
		}
		if encoded, err = json.Marshal(payload); err != nil {
			return nil, 0, fmt.Errorf("cannot be JSON: %w", err)
		}
	}
	if encoded == nil {
		return nil, 0, errNoValue
	}
	size, err = t.size(encoded)
	return encoded, size, err
}

// size returns the payload's size in bytes, or the reason of a refusal by
// PostgreSQL or of a misunderstanding by the connector.
func (t PayloadType) size(payload []byte) (int, error) {
	switch t {
	case Bytes:
		return len(payload), nil
	case Text:
		return len(payload), storable(string(payload))
	}
	// json.Valid looks at syntax and depth (10000) only, and takes any bytes in a
	// string.
	if !utf8.Valid(payload) {
		return 0, errNotUTF8
	}
	if !json.Valid(payload) {
		return 0, errNotJSON
	}
	if t == JSON {
		return len(payload), nil
	}
	return jsonbSize(payload)
}
