package transform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/validjson"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// reservedPrefix begins the names of the connector's own headers.
const reservedPrefix = "cdc-"

// mostHeaders bounds the room made for the headers of an object before they are
// read.
const mostHeaders = 32

var errNoObject = errors.New("it is no JSON object")

// objectHeaders appends a header for each member of the headers column's
// object, in the order of its text (jsonb has an order of its own). Where the
// object is unfit, its text becomes a header under the column's name instead,
// for the dead letter.
func (b *builder) objectHeaders(traced bool) {
	v := b.get(b.plan.object)
	if v.Kind == pg.Null {
		return
	}
	headers := b.event.Record.Headers
	if n := len(b.router.context) + b.plan.headerCount + min(bytes.Count(v.Data, []byte{':'}), mostHeaders); n > cap(headers) {
		headers = append(make([]kgo.RecordHeader, 0, n), headers...)
	}
	if bytes.IndexByte(v.Data, '\\') >= 0 { // values are unescaped into memory of their own
		b.event.made += len(v.Data)
	}
	before := len(headers)
	headers, err := b.appendMembers(headers, v.Data, traced)
	if err != nil {
		reason := ReasonInvalidHeaders
		if errors.Is(err, errNotUTF8) {
			reason = ReasonInvalidUTF8
		}
		b.reject(reason, fmt.Errorf("column %q: %w", b.plan.object.name, err))
		headers = append(headers[:before], kgo.RecordHeader{Key: b.plan.object.name, Value: v.Data})
	}
	b.event.Record.Headers = headers
}

// appendMembers appends the members of the JSON object src. traced tells that
// the record has its traceparent already.
func (b *builder) appendMembers(headers []kgo.RecordHeader, src []byte, traced bool) ([]kgo.RecordHeader, error) {
	if !utf8.Valid(src) {
		return headers, errNotUTF8
	}
	if !json.Valid(src) {
		return headers, errNoObject
	}
	r := validjson.NewReader(src)
	if r.Peek() != '{' {
		return headers, errNoObject
	}
	r.Skip()
	for r.Peek() != '}' {
		if r.Peek() == ',' {
			r.Skip()
			r.Peek()
		}
		name := b.router.names.of(unquoted(r.Text()))
		if err := b.nameable(name); err != nil {
			return headers, err
		}
		r.Peek()
		r.Skip() // the colon
		value, err := scalar(&r)
		if err != nil {
			return headers, fmt.Errorf("header %.40q: %w", name, err)
		}
		if name == headerTraceparent {
			parent := traceparent(value)
			if traced || parent == nil {
				if !traced && value != nil {
					b.warn(WarningNoTrace)
				}
				continue
			}
			value, traced = parent, true
		}
		if name == headerTracestate && !validTracestate(value) {
			if value != nil {
				b.warn(WarningNoTrace)
			}
			continue
		}
		headers = append(headers, kgo.RecordHeader{Key: name, Value: value})
	}
	return headers, nil
}

// nameable returns why a header of an object must not have that name.
func (b *builder) nameable(name string) error {
	ev := &b.router.event
	switch {
	case name == "":
		return errors.New("a header has an empty name")
	case name == HeaderID, name == ev.TypeHeader, strings.HasPrefix(name, reservedPrefix),
		name == headerSchemaVersion && b.plan.version.present, b.plan.cloud != nil && cloudEventHeader(name):
		return fmt.Errorf("the header name %.40q is reserved", name)
	}
	return nil
}

// unquoted returns a JSON string's content: a part of the string if without
// escapes.
func unquoted(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1]
	}
	var s string
	_ = json.Unmarshal(text, &s) // text is a valid string
	return []byte(s)
}

var errNested = errors.New("its value is an object or array; write it as a string")

// scalar reads the next value in a header's form: strings without their quotes,
// numbers and bools as they are written, null as nil.
func scalar(r *validjson.Reader) ([]byte, error) {
	switch r.Peek() {
	case '{', '[':
		return nil, errNested
	case '"':
		return unquoted(r.Text()), nil
	case 'n':
		r.Bare()
		return nil, nil
	}
	return r.Bare(), nil
}

// interned keeps the strings of header names, few in an outbox.
type interned map[string]string

// Bounds of interned: names beyond them are made anew each time.
const (
	maxInterned       = 1024
	maxInternedLength = 64
)

func (n interned) of(name []byte) string {
	if known, ok := n[string(name)]; ok {
		return known
	}
	s := string(name)
	if len(s) <= maxInternedLength {
		if len(n) >= maxInterned {
			clear(n)
		}
		n[s] = s
	}
	return s
}
