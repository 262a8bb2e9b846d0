package transform

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf8"
)

// Limits of Jackson 2.21.
const (
	deepestJSON     = 1000
	longestNumber   = 1000
	longestJSONName = 50_000
)

// jsonKind is the type of a JSON value as Jackson tells them apart.
type jsonKind uint8

const (
	jsonNull jsonKind = iota
	jsonBool
	jsonString
	jsonInt32
	jsonInt64
	jsonBigInteger
	jsonDouble
	jsonObject
	jsonArray
)

// jsonNode is a value of a document. Children are a list in the order of the text.
type jsonNode struct {
	kind        jsonKind
	name        []byte // of a member, in the form of text
	text        []byte // of a scalar, as Jackson writes it
	first, next int32  // the first child, the next sibling; 0: none
	children    int32
}

var errJSONText = errors.New("the text does not begin with a JSON document")

// jsonTree is a document in memory, used again for the next. The root is node 0.
type jsonTree struct {
	nodes  []jsonNode
	floats []byte // the texts of numbers in another spelling
	src    []byte
	pos    int
}

// mostKept bounds the memory kept of a document for the next.
const mostKept = 4096

// again empties a list, to be used again.
func again[T any](list []T) []T {
	if cap(list) > mostKept {
		return nil
	}
	clear(list)
	return list[:0]
}

// manyMembers is the number of members from which on names are found in a map.
const manyMembers = 16

// read parses the document at the start of src, valid UTF-8, as Jackson does: text
// behind the document is ignored, and of members with the same name the last has its
// value at the place of the first.
func (t *jsonTree) read(src []byte) error {
	t.nodes, t.floats, t.src, t.pos = append(again(t.nodes), jsonNode{}), again(t.floats), src, 0
	return t.value(0, 0)
}

func (t *jsonTree) space() byte {
	for ; t.pos < len(t.src); t.pos++ {
		switch c := t.src[t.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// value reads the next value into the node.
func (t *jsonTree) value(at int32, depth int) (err error) {
	switch c := t.space(); {
	case c == '{' || c == '[':
		if depth == deepestJSON {
			return errJSONText
		}
		t.pos++
		if c == '{' {
			return t.object(at, depth+1)
		}
		return t.array(at, depth+1)
	case c == '"':
		t.nodes[at].kind = jsonString
		t.nodes[at].text, err = t.text()
		return err
	case c == '-' || isDigit(c):
		return t.number(at)
	}
	for _, literal := range [...]struct {
		text string
		kind jsonKind
	}{{"true", jsonBool}, {"false", jsonBool}, {"null", jsonNull}} {
		if rest := t.src[t.pos:]; len(rest) >= len(literal.text) && string(rest[:len(literal.text)]) == literal.text {
			t.nodes[at].kind, t.nodes[at].text = literal.kind, rest[:len(literal.text)]
			t.pos += len(literal.text)
			return nil
		}
	}
	return errJSONText
}

// child adds a node behind last, the last child so far of the parent.
func (t *jsonTree) child(parent, last int32) int32 {
	added := int32(len(t.nodes))
	t.nodes = append(t.nodes, jsonNode{})
	if last == 0 {
		t.nodes[parent].first = added
	} else {
		t.nodes[last].next = added
	}
	t.nodes[parent].children++
	return added
}

func (t *jsonTree) array(at int32, depth int) error {
	t.nodes[at].kind = jsonArray
	if t.space() == ']' {
		t.pos++
		return nil
	}
	for last := int32(0); ; {
		last = t.child(at, last)
		if err := t.value(last, depth); err != nil {
			return err
		}
		switch t.space() {
		case ',':
			t.pos++
		case ']':
			t.pos++
			return nil
		default:
			return errJSONText
		}
	}
}

func (t *jsonTree) object(at int32, depth int) error {
	t.nodes[at].kind = jsonObject
	if t.space() == '}' {
		t.pos++
		return nil
	}
	var known map[string]int32
	for last := int32(0); ; {
		if t.space() != '"' {
			return errJSONText
		}
		name, err := t.text()
		if err != nil || len(name) > longestJSONName+len(`""`) {
			return errJSONText
		}
		if t.space() != ':' {
			return errJSONText
		}
		t.pos++
		member := t.member(at, name, known)
		if member == 0 {
			member = t.child(at, last)
			last = member
			t.nodes[member].name = name
			switch n := t.nodes[at].children; {
			case n == manyMembers:
				known = t.index(at)
			case known != nil:
				known[string(name)] = member
			}
		} else {
			old := &t.nodes[member]
			*old = jsonNode{name: old.name, next: old.next}
		}
		if err := t.value(member, depth); err != nil {
			return err
		}
		switch t.space() {
		case ',':
			t.pos++
		case '}':
			t.pos++
			return nil
		default:
			return errJSONText
		}
	}
}

// member finds the object's member of the name; 0: none. known has all members, if not nil.
func (t *jsonTree) member(object int32, name []byte, known map[string]int32) int32 {
	if known != nil {
		return known[string(name)]
	}
	for m := t.nodes[object].first; m != 0; m = t.nodes[m].next {
		if bytes.Equal(t.nodes[m].name, name) {
			return m
		}
	}
	return 0
}

// index has the members of the object by name.
func (t *jsonTree) index(object int32) map[string]int32 {
	known := make(map[string]int32, 2*t.nodes[object].children)
	for m := t.nodes[object].first; m != 0; m = t.nodes[m].next {
		known[string(t.nodes[m].name)] = m
	}
	return known
}

// number reads a number. Integers are of the smallest type; others are double.
func (t *jsonTree) number(at int32) error {
	start := t.pos
	if t.src[t.pos] == '-' {
		t.pos++
	}
	whole := t.digits()
	if whole == 0 || whole > 1 && t.src[t.pos-whole] == '0' {
		return errJSONText
	}
	float := false
	if t.pos < len(t.src) && t.src[t.pos] == '.' {
		t.pos++
		float = true
		if t.digits() == 0 {
			return errJSONText
		}
	}
	if t.pos < len(t.src) && (t.src[t.pos] == 'e' || t.src[t.pos] == 'E') {
		t.pos++
		float = true
		if t.pos < len(t.src) && (t.src[t.pos] == '+' || t.src[t.pos] == '-') {
			t.pos++
		}
		if t.digits() == 0 {
			return errJSONText
		}
	}
	text := t.src[start:t.pos]
	if len(text) > longestNumber {
		return errJSONText
	}
	node := &t.nodes[at]
	if float {
		f, _ := strconv.ParseFloat(string(text), 64) // infinite beyond the range, as in Java
		begin := len(t.floats)
		t.floats = appendJSONFloat(t.floats, f, 64)
		node.kind, node.text = jsonDouble, t.floats[begin:]
		return nil
	}
	node.kind, node.text = jsonBigInteger, text
	n, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case err != nil:
	case n == 0:
		node.kind, node.text = jsonInt32, text[len(text)-1:] // also of -0
	case n == int64(int32(n)):
		node.kind = jsonInt32
	default:
		node.kind = jsonInt64
	}
	return nil
}

// digits passes over digits and returns their number.
func (t *jsonTree) digits() int {
	start := t.pos
	for t.pos < len(t.src) && isDigit(t.src[t.pos]) {
		t.pos++
	}
	return t.pos - start
}

// text reads a string and returns the string in Jackson's spelling. Two strings are
// equal if these texts are.
func (t *jsonTree) text() ([]byte, error) {
	start := t.pos
	for t.pos++; t.pos < len(t.src); t.pos++ {
		switch c := t.src[t.pos]; {
		case c == '"':
			t.pos++
			return t.src[start:t.pos:t.pos], nil
		case c < ' ':
			return nil, errJSONText
		case c == '\\', c >= astral:
			return t.escapedText(start)
		}
	}
	return nil, errJSONText
}

// escapedText is text for a string with a backslash or a character beyond U+FFFF.
func (t *jsonTree) escapedText(start int) ([]byte, error) {
	out := append(make([]byte, 0, 2*(t.pos-start)+64), t.src[start:t.pos]...)
	for t.pos < len(t.src) {
		c := t.src[t.pos]
		t.pos++
		switch {
		case c == '"':
			return append(out, c), nil
		case c < ' ':
			return nil, errJSONText
		case c >= astral:
			r, size := utf8.DecodeRune(t.src[t.pos-1:])
			out = appendSurrogates(out, r)
			t.pos += size - 1
		case c == '\\':
			var err error
			if out, err = t.escape(out); err != nil {
				return nil, err
			}
		default:
			out = append(out, c)
		}
	}
	return nil, errJSONText
}

// escape reads the rest of an escape and appends the character.
func (t *jsonTree) escape(out []byte) ([]byte, error) {
	if t.pos == len(t.src) {
		return nil, errJSONText
	}
	c := t.src[t.pos]
	t.pos++
	switch c {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return append(out, '\\', c), nil
	case '/':
		return append(out, c), nil
	case 'u':
		if len(t.src)-t.pos < 4 {
			return nil, errJSONText
		}
		unit, err := strconv.ParseUint(string(t.src[t.pos:t.pos+4]), 16, 16)
		if err != nil {
			return nil, errJSONText
		}
		t.pos += 4
		return appendUnit(out, rune(unit)), nil
	}
	return nil, errJSONText
}
