package sink

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// MaxMessageBytes is Kafka's setting for the largest batch of a topic.
const MaxMessageBytes = "max.message.bytes"

// letterOverhead is more than the usual size of a dead letter's own headers: an event as
// large as max_record_bytes has a larger dead letter.
const letterOverhead = 4 << 10

// ForDeadLetters are the options for the creation of the dead-letter topic. Events too
// large for their own topics have dead letters, too.
func ForDeadLetters(cfg Options) Options {
	if cfg.TopicConfig[MaxMessageBytes] != "" {
		return cfg
	}
	settings := map[string]string{MaxMessageBytes: strconv.Itoa(int(requestBytes(cfg)))}
	maps.Copy(settings, cfg.TopicConfig)
	cfg.TopicConfig = settings
	return cfg
}

// LargestLetter is the size of a batch with the dead letter of the largest publishable
// event, in bytes.
func LargestLetter(cfg Options) int { return int(cfg.MaxRecordBytes) + letterOverhead + batchOverhead }

// LargerLettersCommand returns the command of Kafka's own tools for a topic that takes
// dead letters as large as the connector can send.
func LargerLettersCommand(cfg Options, topic string) string {
	return cfg.Tools().Set(topic, MaxMessageBytes+"="+strconv.Itoa(int(requestBytes(cfg))))
}

// letterLimit is the greatest length of dead letters after brokers refused a longer
// letter. It holds for a while only: the topic's limit may be raised.
type letterLimit struct {
	limit int // as counted by lengths
	until time.Time
}

// at is the limit at that time.
func (l letterLimit) at(now time.Time) int {
	if l.until.After(now) {
		return l.limit
	}
	return math.MaxInt
}

const (
	// limitHolds is the time until a dead letter is tried whole again.
	limitHolds = time.Minute
	// shortestLetter fits every sensible topic.
	shortestLetter = 1 << 10
)

// cutLetters makes dead letters shorter after a refusal for the letter's size. False: the
// reason is another, or the letters are short already.
func (k *Kafka) cutLetters(letter *transform.Event, refusal error) bool {
	size, before := lengths(&letter.Record), k.letters.at(time.Now())
	if badEvent(refusal).Reason != transform.ReasonRecordTooLarge || min(size, before) <= shortestLetter {
		return false
	}
	// Most topics take an event of max_record_bytes.
	limit := int(k.cfg.MaxRecordBytes) - letterOverhead
	if limit >= min(size, before) {
		limit = min(size, before) / 2
	}
	k.letters = letterLimit{max(limit, shortestLetter), time.Now().Add(limitHolds)}
	k.complain("the dead-letter topic does not take a dead letter as large as this one; it is cut, as its header "+headerCut+" says",
		zap.String("topic", k.deadLetter), zap.Int64("bytes", letter.Size()), zap.Error(refusal),
		zap.String("remedy", LargerLettersCommand(k.cfg, k.deadLetter)))
	return true
}

// lengths sums the lengths of key, value and header values.
func lengths(rec *kgo.Record) (n int) {
	for _, p := range partsOf(rec) {
		n += len(*p.bytes)
	}
	return n
}

// part is a part of a record to cut.
type part struct {
	name  string
	bytes *[]byte
}

func partsOf(rec *kgo.Record) []part {
	parts := make([]part, 0, 2+len(rec.Headers))
	parts = append(parts, part{"key", &rec.Key}, part{"value", &rec.Value})
	for i := range rec.Headers {
		parts = append(parts, part{"header " + rec.Headers[i].Key, &rec.Headers[i].Value})
	}
	return parts
}

// shorten cuts key, value and headers of a dead letter to limit bytes together, the
// longest first, and adds a header with the former lengths of the cut parts:
// "value=5242880, header note=70000". The bytes are not written to; the slice of headers
// must be the record's own.
func shorten(rec *kgo.Record, limit int) {
	parts := partsOf(rec)
	if lengths(rec) <= limit {
		return
	}
	slices.SortStableFunc(parts, func(a, b part) int { return len(*a.bytes) - len(*b.bytes) })
	var cut []string
	for i, p := range parts { // the remaining parts share the rest evenly
		length, share := len(*p.bytes), limit/(len(parts)-i)
		if length > share {
			cut = append(cut, p.name+"="+strconv.Itoa(length))
			*p.bytes = (*p.bytes)[:share:share]
		}
		limit -= len(*p.bytes)
	}
	slices.Reverse(cut)
	rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: headerCut, Value: []byte(strings.Join(cut, ", "))})
}
