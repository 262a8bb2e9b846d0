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

// MaxMessageBytes is Kafka's setting of the largest batch that a topic takes.
const MaxMessageBytes = "max.message.bytes"

// letterOverhead is more than the headers of a dead letter take as a rule, beside the
// event: an event as large as max_record_bytes has a larger dead letter.
const letterOverhead = 4 << 10

// ForDeadLetters are the options that the topic of dead letters is created with. An
// event that is too large for its own topic has a dead letter, too.
func ForDeadLetters(cfg Options) Options {
	if cfg.TopicConfig[MaxMessageBytes] != "" {
		return cfg
	}
	settings := map[string]string{MaxMessageBytes: strconv.Itoa(int(requestBytes(cfg)))}
	maps.Copy(settings, cfg.TopicConfig)
	cfg.TopicConfig = settings
	return cfg
}

// LargestLetter is how many bytes a batch may have to take the dead letter of the
// largest event that could have been published.
func LargestLetter(cfg Options) int { return int(cfg.MaxRecordBytes) + letterOverhead + batchOverhead }

// LargerLettersCommand returns the command of Kafka's own tools that makes the topic
// take dead letters as large as the connector can send.
func LargerLettersCommand(cfg Options, topic string) string {
	return cfg.Tools().Set(topic, MaxMessageBytes+"="+strconv.Itoa(int(requestBytes(cfg))))
}

// letterLimit is how long dead letters may be, as far as brokers refused longer ones.
// It holds for a while only: the topic may be made to take more.
type letterLimit struct {
	limit int // of the bytes that shorten counts
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
	// limitHolds is how long it is before a dead letter is tried whole again.
	limitHolds = time.Minute
	// shortestLetter is what every topic should take.
	shortestLetter = 1 << 10
)

// cutLetters makes dead letters shorter if brokers refuse this one for its size. It
// returns false if that is not why, or if they are short already.
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

// lengths is how many bytes the key, the value and the values of the headers have.
func lengths(rec *kgo.Record) (n int) {
	for _, p := range partsOf(rec) {
		n += len(*p.bytes)
	}
	return n
}

// part is one that can be cut.
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
// longest ones first, and adds a header that says how many bytes each of those had:
// "value=5242880, header note=70000". The record's bytes are not written to, and
// its headers must be its own.
func shorten(rec *kgo.Record, limit int) {
	parts := partsOf(rec)
	if lengths(rec) <= limit {
		return
	}
	slices.SortStableFunc(parts, func(a, b part) int { return len(*a.bytes) - len(*b.bytes) })
	var cut []string
	for i, p := range parts { // the rest is shared out evenly among those that are left
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
