package shadow

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Report counts events and records.
type Report struct {
	Ours   int64 `json:"ours"`   // events read from the log
	Theirs int64 `json:"theirs"` // records read from the topics, repetitions included

	Equal      int64 `json:"equal"`
	Different  int64 `json:"different"`
	Renumbered int64 `json:"renumbered"` // equal but for the number of a schema
	Missing    int64 `json:"missing"`    // events confirmed by Debezium, without a record
	Additional int64 `json:"additional"` // records without an event

	// No differences:
	Repeated int64 `json:"repeated"` // records of an event that has one
	Earlier  int64 `json:"earlier"`  // records perhaps of commits that our reader has not seen
	Bad      int64 `json:"bad"`      // bad events here, without a record there
	Unjudged int64 `json:"unjudged"` // events whose record may be gone, or was not waited for
	Pending  int64 `json:"pending"`  // events without a record that Debezium has not confirmed
	// WithoutID are records that can be compared by content only.
	WithoutID int64 `json:"without_id"`
	// Starts of our reader: commits between two of them were not seen.
	Starts int `json:"starts"`
	// Judging tells that additional records are found by now.
	Judging bool `json:"judging"`

	Parts    []Part    `json:"parts"` // in which records differ, the most frequent first
	Examples []Example `json:"examples"`

	parts map[string]int64
	shown map[string]int // examples by kind and parts
}

// Part counts records that differ in a part.
type Part struct {
	Part  string `json:"part"`
	Count int64  `json:"count"`
}

// Kind is a kind of difference.
type Kind string

// The kinds.
const (
	Different  Kind = "different"
	Renumbered Kind = "renumbered"
	Missing    Kind = "missing"
	Additional Kind = "additional"
)

// Example is a difference.
type Example struct {
	Kind   Kind     `json:"kind"`
	At     string   `json:"lsn,omitempty"` // of the commit
	Parts  []string `json:"parts,omitempty"`
	Ours   *Shown   `json:"ours,omitempty"`
	Theirs *Shown   `json:"theirs,omitempty"`
}

// Shown is a record, shortened.
type Shown struct {
	Topic     string      `json:"topic"`
	Partition int32       `json:"partition"` // negative: that of the key
	Offset    *int64      `json:"offset,omitempty"`
	Key       *string     `json:"key"`
	Value     *string     `json:"value"`
	Headers   [][2]string `json:"headers"`
	Time      int64       `json:"time,omitempty"` // in milliseconds; 0: of writing
}

// longest is the most bytes of a shown key, value or header.
const longest = 300

// shown is a record of ours.
func shown(r *kgo.Record) *Shown {
	s := &Shown{Topic: r.Topic, Partition: r.Partition, Key: text(r.Key), Value: text(r.Value), Headers: [][2]string{}}
	for _, h := range r.Headers {
		value := "null"
		if t := text(h.Value); t != nil {
			value = *t
		}
		s.Headers = append(s.Headers, [2]string{h.Key, value})
	}
	if !r.Timestamp.IsZero() {
		s.Time = r.Timestamp.UnixMilli()
	}
	return s
}

// read is a record of Debezium's.
func read(r *kgo.Record) *Shown {
	s, offset := shown(r), r.Offset
	s.Offset = &offset
	return s
}

// text is nil for null. Bytes that are no text are in base64.
func text(b []byte) *string {
	if b == nil {
		return nil
	}
	isText, more := utf8.Valid(b) && !bytes.ContainsRune(b, 0), ""
	if len(b) > longest {
		b, more = b[:longest], "…"
	}
	s := strings.ToValidUTF8(string(b), "")
	if !isText {
		s = "base64:" + base64.StdEncoding.EncodeToString(b)
	}
	s += more
	return &s
}

func (r *Report) differ(limit int, ex Example) {
	for _, p := range ex.Parts {
		if _, known := r.parts[p]; !known && len(r.parts) >= mostParts {
			p = "others"
		}
		r.parts[p]++
	}
	alike := string(ex.Kind) + " " + strings.Join(ex.Parts, ", ")
	if r.shown[alike] < limit && len(r.Examples) < limit*mostKinds {
		r.shown[alike]++
		r.Examples = append(r.Examples, ex)
	}
}

// mostKinds bounds the examples, in multiples of Options.Examples.
const mostKinds = 10

// mostParts bounds the parts told apart: headers have any names.
const mostParts = 100

// Differences is their number.
func (r *Report) Differences() int64 { return r.Different + r.Renumbered + r.Missing + r.Additional }

// Report is the state now.
func (c *Comparison) Report() Report {
	r := c.report
	for _, e := range c.window {
		if !e.matched() {
			r.Pending++
		}
	}
	r.Judging = len(c.fence) > 0
	r.Examples = slices.Clone(c.report.Examples)
	r.Parts = []Part{}
	for _, name := range slices.Sorted(maps.Keys(c.report.parts)) {
		r.Parts = append(r.Parts, Part{name, c.report.parts[name]})
	}
	slices.SortStableFunc(r.Parts, func(a, b Part) int { return cmp.Compare(b.Count, a.Count) })
	return r
}
