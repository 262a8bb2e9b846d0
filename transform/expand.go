package transform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/cdc-outbox/cdc-outbox/internal/base/validjson"
)

// expandOptions are event.null_behavior and event.empty_array_behavior.
type expandOptions struct {
	keepNull       bool // null members
	keepEmptyArray bool // members that are empty arrays
}

var (
	errNotExpandable = errors.New("the payload is no text that starts with { or [")
	errMixedArray    = errors.New("the members of an array differ in type")
	errUntypedArray  = errors.New("an array has no member that tells its type")
)

// expand appends the JSON document src without insignificant space, null
// members and empty-array members. Numbers, strings and the order of members
// stay as they are written. Elements of arrays are never dropped.
//
// Debezium infers a Connect schema first (JsonSchemaData), and does not expand
// documents without a schema. We do the same, so consumers see the same. The rules:
// the elements of an array, nulls aside, are of a single kind, where int32, int64
// and other numbers are separate kinds; at least one is not null, unless nulls are
// kept; the first such element is not an empty array, unless empty arrays are kept.
// An array within an array needs a type only as the first element.
//
// The error is errNotJSON where src starts with { or [ and is not valid JSON.
// dst is not changed on error. An object with the same name twice is copied
// with both.
func expand(dst, src []byte, opts expandOptions) ([]byte, error) {
	if len(src) == 0 || src[0] != '{' && src[0] != '[' {
		return nil, errNotExpandable
	}
	if !json.Valid(src) {
		var discard json.RawMessage
		return nil, fmt.Errorf("%w: %w", errNotJSON, json.Unmarshal(src, &discard))
	}
	if !utf8.Valid(src) {
		return nil, errNotUTF8
	}
	x := expander{Reader: validjson.NewReader(src), dst: dst, opts: opts}
	// Debezium types a top-level array too, but cannot publish it: no schema to
	// agree with.
	typed := src[0] == '{'
	if _, err := x.value(typed); err != nil {
		return nil, err
	}
	return x.dst, nil
}

// kind is the type of a JSON value as Connect tells them apart.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindString
	kindInt32
	kindInt64
	kindFloat
	kindObject
	kindArray
	kindEmptyArray
)

// expander copies a valid JSON document.
type expander struct {
	validjson.Reader
	dst  []byte
	opts expandOptions
}

// punctuation copies the next byte that is not space.
func (x *expander) punctuation() byte {
	c := x.Peek()
	x.dst = append(x.dst, c)
	x.Skip()
	return c
}

// value copies the next value. With typed, Debezium infers a schema from the
// value.
func (x *expander) value(typed bool) (kind, error) {
	switch x.Peek() {
	case '{':
		return kindObject, x.object(typed)
	case '[':
		return x.array(typed)
	case '"':
		x.dst = append(x.dst, x.Text()...)
		return kindString, nil
	}
	bare := x.Bare()
	x.dst = append(x.dst, bare...)
	switch bare[0] {
	case 't', 'f':
		return kindBool, nil
	case 'n':
		return kindNull, nil
	}
	return numberKind(bare), nil
}

// object copies an object without the dropped members.
func (x *expander) object(typed bool) error {
	x.punctuation()
	for first := true; ; {
		switch x.Peek() {
		case '}':
			x.punctuation()
			return nil
		case ',':
			x.Skip()
			x.Peek()
		}
		before := len(x.dst)
		if !first {
			x.dst = append(x.dst, ',')
		}
		x.dst = append(x.dst, x.Text()...)
		x.punctuation()
		k, err := x.value(typed)
		if err != nil {
			return err
		}
		if k == kindNull && !x.opts.keepNull || k == kindEmptyArray && !x.opts.keepEmptyArray {
			x.dst = x.dst[:before]
			continue
		}
		first = false
	}
}

// array copies an array and, if typed, requires a known type.
func (x *expander) array(typed bool) (kind, error) {
	x.punctuation()
	if x.Peek() == ']' {
		x.punctuation()
		return kindEmptyArray, nil
	}
	element := kindNull
	for {
		k, err := x.value(typed && (element == kindNull || x.Peek() == '{'))
		if err != nil {
			return 0, err
		}
		if typed {
			if element, err = x.elementKind(element, k); err != nil {
				return 0, err
			}
		}
		if x.punctuation() == ']' {
			break
		}
	}
	if typed && element == kindNull && !x.opts.keepNull {
		return 0, errUntypedArray
	}
	return kindArray, nil
}

// elementKind returns the kind of an array's elements when the next is of kind
// k and those before it were of kind element; kindNull means any.
func (x *expander) elementKind(element, k kind) (kind, error) {
	switch {
	case k == kindNull:
		return element, nil
	case element == kindNull && k == kindEmptyArray && !x.opts.keepEmptyArray:
		return 0, errUntypedArray
	case k == kindEmptyArray:
		k = kindArray
	}
	if element != kindNull && element != k {
		return 0, errMixedArray
	}
	return k, nil
}

// numberKind tells a number's kind as Jackson does.
func numberKind(digits []byte) kind {
	if bytes.ContainsAny(digits, ".eE") {
		return kindFloat
	}
	if _, err := strconv.ParseInt(string(digits), 10, 32); err == nil {
		return kindInt32
	}
	if _, err := strconv.ParseInt(string(digits), 10, 64); err == nil {
		return kindInt64
	}
	return kindFloat
}
