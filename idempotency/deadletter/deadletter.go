// Package deadletter names the headers that a dead letter has beside the record
// itself: for writers with a Kafka client of their own, and for readers.
package deadletter

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// The headers a dead letter has after the original ones. Values are text.
const (
	HeaderReason    = "cdc-dlq-reason"    // a Reason
	HeaderError     = "cdc-dlq-error"     // the error, for people
	HeaderScope     = "cdc-dlq-scope"     // the consumer that gave the record up
	HeaderAttempts  = "cdc-dlq-attempts"  // how often the handler was called; 0 if never
	HeaderTopic     = "cdc-dlq-topic"     // where the record was read
	HeaderPartition = "cdc-dlq-partition" // likewise
	HeaderOffset    = "cdc-dlq-offset"    // likewise
	HeaderTimestamp = "cdc-dlq-timestamp" // the record's, RFC 3339
)

// The reasons of dead letters.
const (
	ReasonBadKey   = "bad_key"  // no usable id
	ReasonMismatch = "mismatch" // the id is known with another payload
	ReasonFailed   = "failed"   // the handler failed for good, or too often
)

// Origin is where a record was read.
type Origin struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp time.Time
}

// Header is a header of a dead letter.
type Header struct{ Key, Value string }

// Headers returns the headers to add to the record's own.
func Headers(letter idempotency.DeadLetter, from Origin) []Header {
	explanation := ""
	if letter.Reason != nil {
		explanation = letter.Reason.Error()
		explanation = strings.ToValidUTF8(explanation[:min(len(explanation), storage.MaxReasonBytes)], "")
	}
	return []Header{
		{HeaderReason, reasonOf(letter.Reason)},
		{HeaderError, explanation},
		{HeaderScope, letter.Message.Key.Scope},
		{HeaderAttempts, strconv.Itoa(letter.Attempts)},
		{HeaderTopic, from.Topic},
		{HeaderPartition, strconv.FormatInt(int64(from.Partition), 10)},
		{HeaderOffset, strconv.FormatInt(from.Offset, 10)},
		{HeaderTimestamp, from.Timestamp.UTC().Format(time.RFC3339Nano)},
	}
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, storage.ErrBadKey):
		return ReasonBadKey
	case errors.Is(err, storage.ErrMismatch):
		return ReasonMismatch
	default:
		return ReasonFailed
	}
}
