package avro

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"unicode/utf8"
)

// Options are a writer's.
type Options struct {
	// IgnoreUnknown leaves out members without a field. Otherwise they are an error.
	IgnoreUnknown bool
	// Text has the document be the text of a Textual schema's value, without quotes.
	Text bool
}

// encoder is a writer's memory, used again.
type encoder struct {
	document
	ignoreUnknown bool
	depth         int
	members       []int // by field, of all open records: the node, or 0
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// Append appends the document in Avro's binary form. The error names the place.
func (s *Schema) Append(dst, document []byte, opts Options) ([]byte, error) {
	if opts.Text {
		return s.text(dst, document)
	}
	e := encoders.Get().(*encoder)
	defer e.release()
	e.ignoreUnknown, e.depth, e.members = opts.IgnoreUnknown, 0, e.members[:0]
	if err := e.read(document); err != nil {
		return dst, placed(err)
	}
	out, err := e.value(dst, s.root, 0)
	if err != nil {
		return dst, placed(err)
	}
	if s.root.kind == kindBytes && s.root.logical == "" {
		// As Confluent's serializers: bytes by themselves have no length.
		_, n := binary.Varint(out[len(dst):])
		out = append(dst, out[len(dst)+n:]...)
	}
	return out, nil
}

// mostKept bounds the memory kept for other documents.
const mostKept = 4096

// release keeps nothing of the document.
func (e *encoder) release() {
	if cap(e.nodes) > mostKept {
		e.nodes = nil
	}
	clear(e.nodes)
	encoders.Put(e)
}

// text appends the document as the value of a string or an enum.
func (s *Schema) text(dst, document []byte) ([]byte, error) {
	if !utf8.Valid(document) {
		return dst, ErrNotUTF8
	}
	out := dst
	branch, t := s.root.besideNull()
	if branch >= 0 {
		out = binary.AppendVarint(out, int64(branch))
	}
	var err error
	if t.kind == kindEnum {
		out, err = t.symbol(out, document)
	} else {
		out, err = t.str(out, document)
	}
	if err != nil {
		return dst, err
	}
	return out, nil
}

// mismatch is an error at a place; the steps to the place are in reverse order.
type mismatch struct {
	steps []string
	err   error
}

func (m *mismatch) Error() string {
	path := ""
	for i := len(m.steps) - 1; i >= 0; i-- {
		path += m.steps[i]
	}
	if path == "" {
		return m.err.Error()
	}
	if path[0] == '.' {
		path = path[1:]
	}
	return path + ": " + m.err.Error()
}

func (m *mismatch) Unwrap() error { return m.err }

// within adds a step to the place of an error.
func within(err error, step string) error {
	m, ok := err.(*mismatch) //nolint:errorlint // made here, never wrapped
	if !ok {
		m = &mismatch{err: err}
	}
	m.steps = append(m.steps, step)
	return m
}

// placed is the error of a document, with a place even at the top.
func placed(err error) error {
	if _, ok := err.(*mismatch); ok { //nolint:errorlint // made here, never wrapped
		return err
	}
	return fmt.Errorf("the document: %w", err)
}

// value appends the node's value.
func (e *encoder) value(dst []byte, t *typ, at int) ([]byte, error) {
	n := &e.nodes[at]
	switch t.kind {
	case kindUnion:
		return e.union(dst, t, at)
	case kindRecord:
		if n.kind == '{' {
			return e.record(dst, t, at)
		}
	case kindArray:
		if n.kind == '[' {
			return e.array(dst, t, at)
		}
	case kindMap:
		if n.kind == '{' {
			return e.dictionary(dst, t, at)
		}
	case kindNull:
		if n.kind == 'n' {
			return dst, nil
		}
	case kindBoolean:
		switch n.kind {
		case 't':
			return append(dst, 1), nil
		case 'f':
			return append(dst, 0), nil
		}
	default:
		return t.scalar(dst, n)
	}
	return dst, t.unfit(n)
}

// unfit is the error of a value of another JSON type.
func (t *typ) unfit(n *node) error {
	what := "null"
	switch n.kind {
	case '{':
		what = "an object"
	case '[':
		what = "an array"
	case '"', 't', 'f':
		what = fmt.Sprintf("%.40s", n.text)
	case 'n':
	default:
		what = fmt.Sprintf("the number %.40s", n.text)
	}
	return fmt.Errorf("%s is no value of type %s", what, t.described())
}

func (t *typ) described() string {
	if t.logical != "" {
		return t.logical
	}
	return t.name
}

func isNumber(n *node) bool { return n.kind == '-' || '0' <= n.kind && n.kind <= '9' }

// scalar appends a number, a string, bytes, a fixed or an enum.
func (t *typ) scalar(dst []byte, n *node) ([]byte, error) {
	if isNumber(n) {
		return t.number(dst, n)
	}
	if n.kind != '"' {
		return dst, t.unfit(n)
	}
	text, err := unquote(n.text)
	if err != nil {
		return dst, fmt.Errorf("%.40s %w", n.text, err)
	}
	switch t.kind {
	case kindString:
		return t.str(dst, text)
	case kindEnum:
		return t.symbol(dst, text)
	case kindInt, kindLong:
		if t.logical == "" {
			return dst, t.unfit(n)
		}
		v, err := moment(t.logical, string(text))
		if err != nil {
			return dst, err
		}
		return binary.AppendVarint(dst, v), nil
	case kindFloat, kindDouble:
		v, ok := floatWords[string(text)]
		if !ok {
			return dst, t.unfit(n)
		}
		return t.float(dst, v), nil
	}
	data, err := t.binary(text)
	if err != nil {
		return dst, err
	}
	if t.kind == kindBytes {
		dst = binary.AppendVarint(dst, int64(len(data)))
	}
	return append(dst, data...), nil
}

// number appends a JSON number.
func (t *typ) number(dst []byte, n *node) ([]byte, error) {
	switch {
	case t.kind == kindInt || t.kind == kindLong:
		bits := 64
		if t.kind == kindInt {
			bits = 32
		}
		v, err := integer(n.text, bits)
		if err != nil {
			return dst, err
		}
		return binary.AppendVarint(dst, v), nil
	case t.kind == kindFloat || t.kind == kindDouble:
		bits := 64
		if t.kind == kindFloat {
			bits = 32
		}
		v, err := float(n.text, bits)
		if err != nil {
			return dst, err
		}
		return t.float(dst, v), nil
	case t.logical == "decimal":
		data, err := t.decimal(n.text)
		if err != nil {
			return dst, err
		}
		if t.kind == kindBytes {
			dst = binary.AppendVarint(dst, int64(len(data)))
		}
		return append(dst, data...), nil
	}
	return dst, t.unfit(n)
}

func (t *typ) float(dst []byte, v float64) []byte {
	if t.kind == kindFloat {
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(v)))
	}
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
}

func (t *typ) str(dst, text []byte) ([]byte, error) {
	if t.logical == "uuid" {
		if _, err := parseUUID(text); err != nil {
			return dst, fmt.Errorf("%.40q %w", text, err)
		}
	}
	dst = binary.AppendVarint(dst, int64(len(text)))
	return append(dst, text...), nil
}

func (t *typ) symbol(dst, text []byte) ([]byte, error) {
	i, ok := t.symbols[string(text)]
	if !ok {
		return dst, fmt.Errorf("%.40q is no symbol of %s", text, t.name)
	}
	return binary.AppendVarint(dst, int64(i)), nil
}

// binary is the value of bytes or a fixed: base64, the number of a decimal, or a UUID.
func (t *typ) binary(text []byte) (data []byte, err error) {
	switch t.logical {
	case "decimal":
		if data, err = t.decimal(text); errors.Is(err, errNumber) {
			return nil, fmt.Errorf("%.40q %w", text, err)
		}
		return data, err
	case "uuid":
		id, err := parseUUID(text)
		if err != nil {
			return nil, fmt.Errorf("%.40q %w", text, err)
		}
		return id[:], nil
	}
	data, err = base64.StdEncoding.AppendDecode(make([]byte, 0, base64.StdEncoding.DecodedLen(len(text))), text)
	if err != nil {
		return nil, fmt.Errorf("%.40q is no base64, the form of %s", text, t.name)
	}
	if t.kind == kindFixed && len(data) != t.size {
		return nil, fmt.Errorf("%d bytes are not the %d of %s", len(data), t.size, t.name)
	}
	return data, nil
}

// record appends the fields in the schema's order.
func (e *encoder) record(dst []byte, t *typ, at int) ([]byte, error) {
	if e.depth++; e.depth > deepest {
		return dst, errTooDeep
	}
	defer func() { e.depth-- }()
	base, err := e.match(t, at)
	if err != nil {
		return dst, err
	}
	for i := range t.fields {
		f, member := &t.fields[i], e.members[base+i]
		switch {
		case member != 0:
			if dst, err = e.value(dst, f.typ, member); err != nil {
				return dst, within(err, "."+f.name)
			}
		case f.fallback != nil:
			dst = append(dst, f.fallback...)
		default:
			if dst, err = f.typ.absent(dst); err != nil {
				return dst, within(err, "."+f.name)
			}
		}
	}
	e.members = e.members[:base]
	return dst, nil
}

var errMissing = errors.New("is missing, and has no default")

// absent appends the value of a field without a member and without a default: null.
func (t *typ) absent(dst []byte) ([]byte, error) {
	if t.kind == kindNull {
		return dst, nil
	}
	for i, branch := range t.branches {
		if branch.kind == kindNull {
			return binary.AppendVarint(dst, int64(i)), nil
		}
	}
	return dst, errMissing
}

// match finds the member of each field; members[base:] are the nodes by field.
func (e *encoder) match(t *typ, at int) (base int, err error) {
	base = len(e.members)
	for range t.fields {
		e.members = append(e.members, 0)
	}
	for member := at + 1; member < e.nodes[at].end; member = e.nodes[member].end {
		i, ok, err := e.fieldOf(t, member)
		switch {
		case err != nil:
			return base, err
		case !ok && e.ignoreUnknown:
		case !ok:
			return base, within(fmt.Errorf("is no field of %s", t.name), step(e.nodes[member].name))
		case e.members[base+i] != 0:
			return base, within(errors.New("is there twice"), step(e.nodes[member].name))
		default:
			e.members[base+i] = member
		}
	}
	return base, nil
}

// fieldOf is the index of a member's field.
func (e *encoder) fieldOf(t *typ, member int) (i int, ok bool, err error) {
	name, err := unquote(e.nodes[member].name)
	if err != nil {
		return 0, false, within(err, step(e.nodes[member].name))
	}
	i, ok = t.index[string(name)]
	return i, ok, nil
}

// step is a member in the place of an error.
func step(name []byte) string { return fmt.Sprintf(".%.60s", name[1:len(name)-1]) }

// array appends all elements as a single block.
func (e *encoder) array(dst []byte, t *typ, at int) ([]byte, error) {
	count := 0
	for element := at + 1; element < e.nodes[at].end; element = e.nodes[element].end {
		count++
	}
	if count == 0 {
		return append(dst, 0), nil
	}
	dst = binary.AppendVarint(dst, int64(count))
	i := 0
	for element := at + 1; element < e.nodes[at].end; element = e.nodes[element].end {
		var err error
		if dst, err = e.value(dst, t.items, element); err != nil {
			return dst, within(err, "["+strconv.Itoa(i)+"]")
		}
		i++
	}
	return append(dst, 0), nil
}

// dictionary appends a map as a single block, in the document's order.
func (e *encoder) dictionary(dst []byte, t *typ, at int) ([]byte, error) {
	seen := make(map[string]bool)
	for member := at + 1; member < e.nodes[at].end; member = e.nodes[member].end {
		name, err := unquote(e.nodes[member].name)
		if err == nil && seen[string(name)] {
			err = errors.New("is there twice")
		}
		if err != nil {
			return dst, within(err, step(e.nodes[member].name))
		}
		seen[string(name)] = true
	}
	if len(seen) == 0 {
		return append(dst, 0), nil
	}
	dst = binary.AppendVarint(dst, int64(len(seen)))
	for member := at + 1; member < e.nodes[at].end; member = e.nodes[member].end {
		name, err := unquote(e.nodes[member].name)
		if err != nil {
			return dst, err
		}
		dst = append(binary.AppendVarint(dst, int64(len(name))), name...)
		if dst, err = e.value(dst, t.items, member); err != nil {
			return dst, within(err, step(e.nodes[member].name))
		}
	}
	return append(dst, 0), nil
}
