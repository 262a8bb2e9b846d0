package sink

import (
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Letter is a dead letter, read back. Key, value and headers are those of the
// original record, as far as Cut leaves them.
type Letter struct {
	Reason, Error, Table string
	ID                   []byte // nil for NULL
	LSN, Seq             string // "" without a position
	Topic                string // "" without one
	Time                 time.Time
	// Cut has the former lengths of the parts cut short; "": the letter is whole.
	Cut        string
	Key, Value []byte
	Headers    []kgo.RecordHeader
}

// ReadLetter reads a record of the dead-letter topic; ok is false for a record of
// others. The bytes stay the record's.
func ReadLetter(rec *kgo.Record) (l Letter, ok bool) {
	begin := len(rec.Headers) - 1 // an original header may have the name, too
	for begin >= 0 && rec.Headers[begin].Key != headerReason {
		begin--
	}
	if begin < 0 {
		return l, false
	}
	l.Key, l.Value, l.Headers = rec.Key, rec.Value, slices.Clip(rec.Headers[:begin])
	for _, h := range rec.Headers[begin:] {
		text := string(h.Value)
		switch h.Key {
		case headerReason:
			l.Reason = text
		case headerError:
			l.Error = text
		case headerTable:
			l.Table = text
		case headerID:
			l.ID = h.Value
		case headerLSN:
			l.LSN = text
		case headerSeq:
			l.Seq = text
		case headerTopic:
			l.Topic = text
		case headerTimestamp:
			l.Time, _ = time.Parse(time.RFC3339Nano, text)
		case headerCut:
			l.Cut = text
		}
	}
	return l, true
}

// Whole tells whether the row could become a record, which the connector's limit, its
// schema or the broker refused. Other letters have the parts that could be made.
func (l *Letter) Whole() bool {
	switch transform.Reason(l.Reason) {
	case transform.ReasonMissingTopic, transform.ReasonRecordTooLarge, transform.ReasonRejectedByBroker,
		transform.ReasonSchemaMismatch, transform.ReasonUnknownSchema:
		return true
	}
	return false
}

// KeyCut tells whether the key is cut short.
func (l *Letter) KeyCut() bool {
	return strings.HasPrefix(l.Cut, "key=") || strings.Contains(l.Cut, ", key=")
}
