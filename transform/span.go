package transform

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Span is the span of an event's publication. The ids are made of the event: an event that is
// published again has the same.
type Span struct {
	TraceID  [16]byte
	SpanID   [8]byte
	ParentID [8]byte // zero: none
	State    []byte  // the tracestate of the parent
}

// Spans says which events have a Span. Package config sets it.
type Spans struct {
	// On gives a Span to each event whose traceparent is sampled, and names the span in
	// the record's traceparent.
	On bool
	// Ratio is the part of the events without a traceparent that get a trace of their own.
	Ratio float64
}

const headerTracestate = "tracestate"

// The parts of a traceparent of version 00.
const (
	traceAt, spanAt, flagsAt = 3, 36, 53
	sampled                  = 1
)

// span gives the event its span, and a good event's record the traceparent.
func (b *builder) span() {
	if !b.router.event.Spans.On || len(b.event.ID) == 0 {
		return
	}
	headers, parent := b.event.Record.Headers, -1
	var state []byte
	for i, h := range headers {
		switch {
		case h.Key == headerTraceparent && parent < 0:
			parent = i
		case h.Key == headerTracestate:
			state = h.Value
		}
	}
	if parent < 0 {
		b.rootSpan()
		return
	}
	text := headers[parent].Value
	if !validTraceparent(text) {
		return
	}
	var flags [1]byte
	_, _ = hex.Decode(flags[:], text[flagsAt:flagsAt+2])
	if flags[0]&sampled == 0 {
		return
	}
	span := &Span{State: state}
	_, _ = hex.Decode(span.TraceID[:], text[traceAt:traceAt+32])
	_, _ = hex.Decode(span.ParentID[:], text[spanAt:spanAt+16])
	b.name(span, text)
	if b.bad == nil {
		headers[parent].Value = span.traceparent(flags[0])
	}
}

// rootSpan begins a trace for the configured part of the events.
func (b *builder) rootSpan() {
	ratio := b.router.event.Spans.Ratio
	if ratio <= 0 {
		return
	}
	span := &Span{}
	sum := sha256.Sum256(append([]byte(b.event.Table+"\x00trace\x00"), b.event.ID...))
	copy(span.TraceID[:], sum[:])
	// The decision is the usual one by trace id: others with the ratio agree.
	if ratio < 1 && float64(binary.BigEndian.Uint64(span.TraceID[8:])>>1) >= ratio*math.MaxInt64 {
		return
	}
	b.name(span, nil)
	if b.bad == nil {
		b.event.Record.Headers = append(b.event.Record.Headers, kgo.RecordHeader{Key: headerTraceparent, Value: span.traceparent(sampled)})
	}
}

// name makes the span's id of the event and its parent.
func (b *builder) name(span *Span, parent []byte) {
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(b.event.Table), b.event.ID, parent} {
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		sum.Write(part)
	}
	copy(span.SpanID[:], sum.Sum(nil))
	b.event.Span = span
	b.event.made += spanMemory
}

// spanMemory is about the memory of a span with its traceparent.
const spanMemory = 160

// traceparent is the header of the span.
func (s *Span) traceparent(flags byte) []byte {
	text := make([]byte, 0, flagsAt+2)
	text = append(text, "00-"...)
	text = append(hex.AppendEncode(text, s.TraceID[:]), '-')
	text = append(hex.AppendEncode(text, s.SpanID[:]), '-')
	return hex.AppendEncode(text, []byte{flags})
}

// mostMembers and longestMember are bounds of W3C Trace Context §3.3.1.
const mostMembers, longestMember = 32, 256

// validTracestate checks the list of W3C Trace Context §3.3.1.
func validTracestate(b []byte) bool {
	members := 0
	for member := range bytes.SplitSeq(b, []byte{','}) {
		member = bytes.Trim(member, " \t")
		if len(member) == 0 {
			continue
		}
		key, value, ok := bytes.Cut(member, []byte{'='})
		members++
		if !ok || members > mostMembers || !validStateKey(key) || !validStateValue(value) {
			return false
		}
	}
	return members > 0
}

func validStateKey(key []byte) bool {
	for i, c := range key {
		letter := 'a' <= c && c <= 'z' || isDigit(c)
		if !letter && (i == 0 || !bytes.ContainsRune([]byte("_-*/@"), rune(c))) {
			return false
		}
	}
	return len(key) > 0 && len(key) <= longestMember
}

func validStateValue(value []byte) bool {
	for _, c := range value {
		if c < ' ' || c > '~' || c == ',' || c == '=' {
			return false
		}
	}
	return len(value) > 0 && len(value) <= longestMember
}
