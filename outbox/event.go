package outbox

import (
	"fmt"

	"github.com/google/uuid"
)

// Event becomes a Kafka record.
type Event struct {
	// ID is the event's identity, by which consumers recognise a repetition; it
	// becomes the header id. The zero value is replaced by a new one, see NewID.
	// Give your own to repeat a transaction whose commit got no answer: the
	// second then fails if the first was carried out, in a table with unique
	// ids, such as Schema's. In PartitionedSchema's, and as a message, the event
	// is there twice, with the same id.
	ID uuid.UUID
	// AggregateType says what kind of thing the event is about, such as order. It
	// chooses the topic. Required; at most 255 characters. A topic name takes
	// letters, digits, dot, underscore and hyphen; the connector stops at an event
	// whose topic cannot exist.
	AggregateType string
	// AggregateID is the thing's own id, and becomes the record's key: events
	// with the same key keep their order. Required; at most 255 characters.
	AggregateID string
	// Type says what happened, such as OrderPlaced, and becomes the header
	// eventType. Required; at most 255 characters.
	Type string
	// Payload becomes the record's value: a json.RawMessage or []byte as is, a
	// string, too, where payloads are Text or Bytes, anything else as
	// encoding/json has it. NoPayload is for none at all; nil, or a nil pointer,
	// is refused, as it is more often forgotten than meant. See PayloadType.
	Payload any
	// Headers become headers of the record; at most 128 KiB of them. The names the
	// connector sets itself are refused: id, eventType, schemaVersion and all
	// beginning with cdc-. The map is only read.
	Headers map[string]string
}

// NoPayload as an event's payload is SQL's NULL, and so a record without a
// value: in a compacted topic, a tombstone deleting the key.
var NoPayload = noPayload{}

type noPayload struct{}

// NewID returns a new event id, a UUID of version 7. Ids of a single process
// ascend; they start with the time, so the table's index stays compact. NewID
// is safe for concurrent use.
func NewID() (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, fmt.Errorf("make event id: %w", err)
	}
	return id, nil
}
