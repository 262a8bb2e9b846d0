// Package avro writes JSON documents as Avro by a writer's schema. Pure: no I/O, no
// clock, no goroutine.
//
// Invariants:
//
//  1. No value changes on the way: a number out of the type's range, or with too many
//     digits, is an error. Only fractions in float and double are rounded.
//  2. The branch of a union follows from the schema and the value alone, or the document
//     is refused.
//  3. Every error names the place in the document.
//
// No document makes the package panic, or work for longer than in proportion to its size.
//
// Why no library: hamba/avro has no maintainer since 2026. twmb/avro 1.9.1 (DecodeJSON, then
// Encode) reads Avro's own JSON form, and agrees with the tests here except for these.
// Written otherwise, or with a loss:
//
//   - unknown members, and all but the last of equal names, go without an error
//   - base64 counts as characters, bytes of bytes
//   - "1.28" for a decimal counts as the bytes of the unscaled value
//   - a whole number that float or double cannot hold is rounded
//   - half a surrogate pair becomes U+FFFD
//   - a union's first branch of the JSON type counts: 0.1 goes to float before double, a
//     text to bytes before string, an object to the first of two fitting records
//   - maps come in Go's order, another one each time: a key would change its partition
//
// Refused: dates, times, timestamps and UUIDs of a fixed as text, an object for a record
// behind others or for a map beside records, an absent member for ["string", "null"].
// Errors lack indexes of arrays, and within unions the reason.
//
// Non-goals: reading Avro, schema evolution, Avro's own JSON form of unions, the types
// duration and, in text, big-decimal.
package avro

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

type kind uint8

const (
	kindNull kind = iota
	kindBoolean
	kindInt
	kindLong
	kindFloat
	kindDouble
	kindBytes
	kindString
	kindRecord
	kindEnum
	kindArray
	kindMap
	kindFixed
	kindUnion
)

var primitives = map[string]kind{
	"null": kindNull, "boolean": kindBoolean, "int": kindInt, "long": kindLong, "float": kindFloat,
	"double": kindDouble, "bytes": kindBytes, "string": kindString,
}

// typ is a type of a schema.
type typ struct {
	kind    kind
	logical string
	name    string // the full name, or the name of an unnamed type

	fields   []field        // of a record
	index    map[string]int // of the fields, by name
	symbols  map[string]int
	items    *typ // of an array or a map
	branches []*typ

	size             int // of a fixed
	precision, scale int // of a decimal
}

type field struct {
	name string
	typ  *typ
	// fallback is the default in Avro, or nil.
	fallback []byte
}

// Schema is a parsed schema, for any number of goroutines.
type Schema struct{ root *typ }

// Name is the full name of the record, or of another type at the top.
func (s *Schema) Name() string { return s.root.name }

// Textual reports whether a value is a text by itself, not a JSON document: a string or an
// enum, also beside null.
func (s *Schema) Textual() bool {
	_, t := s.root.besideNull()
	return t.kind == kindString || t.kind == kindEnum
}

// besideNull is the only other branch of a union with null, and its number, or the type
// itself.
func (t *typ) besideNull() (branch int, other *typ) {
	if t.kind != kindUnion || len(t.branches) != 2 {
		return -1, t
	}
	for i, b := range t.branches {
		if b.kind == kindNull {
			return 1 - i, t.branches[1-i]
		}
	}
	return -1, t
}

// Parse parses a schema. Schemas referred to come first, in the order of dependence.
func Parse(text string, referred ...string) (*Schema, error) {
	p := parser{named: map[string]*typ{}}
	for _, other := range referred {
		if _, err := p.parse([]byte(other), ""); err != nil {
			return nil, fmt.Errorf("referred schema: %w", err)
		}
	}
	root, err := p.parse([]byte(text), "")
	if err != nil {
		return nil, err
	}
	for _, d := range p.defaults {
		f := &d.of.fields[d.field]
		if f.fallback, err = appendDefault([]byte{}, f.typ, d.value); err != nil {
			return nil, fmt.Errorf("default of field %s of %s: %w", f.name, d.of.name, err)
		}
	}
	return &Schema{root}, nil
}

// parser collects named types; defaults are made when all types are known.
type parser struct {
	named    map[string]*typ
	defaults []pending
	depth    int
}

type pending struct {
	of    *typ
	field int
	value json.RawMessage
}

// definition is a type as an object.
type definition struct {
	Type        json.RawMessage `json:"type"`
	Name        string          `json:"name"`
	Namespace   *string         `json:"namespace"`
	Fields      []fieldText     `json:"fields"`
	Symbols     []string        `json:"symbols"`
	Items       json.RawMessage `json:"items"`
	Values      json.RawMessage `json:"values"`
	Size        int             `json:"size"`
	LogicalType json.RawMessage `json:"logicalType"`
	Precision   json.RawMessage `json:"precision"`
	Scale       json.RawMessage `json:"scale"`
}

type fieldText struct {
	Name    string          `json:"name"`
	Type    json.RawMessage `json:"type"`
	Default json.RawMessage `json:"default"`
}

var (
	errNoSchema = errors.New("is no Avro schema")
	errTooDeep  = errors.New("types are nested too deeply")
)

// deepest bounds the nesting of a schema, and of the values written by recursive types.
const deepest = 500

// parse parses a type within a namespace.
func (p *parser) parse(text json.RawMessage, namespace string) (*typ, error) {
	if p.depth++; p.depth > deepest {
		return nil, errTooDeep
	}
	defer func() { p.depth-- }()
	text = json.RawMessage(strings.TrimLeft(string(text), " \t\r\n"))
	if len(text) == 0 {
		return nil, errNoSchema
	}
	switch text[0] {
	case '"':
		var name string
		if err := json.Unmarshal(text, &name); err != nil {
			return nil, fmt.Errorf("%w: %w", errNoSchema, err)
		}
		return p.lookUp(name, namespace)
	case '[':
		return p.union(text, namespace)
	case '{':
		var d definition
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("%w: %w", errNoSchema, err)
		}
		return p.define(&d, namespace)
	}
	return nil, errNoSchema
}

func (p *parser) lookUp(name, namespace string) (*typ, error) {
	if k, ok := primitives[name]; ok {
		return &typ{kind: k, name: name}, nil
	}
	if t, ok := p.named[qualify(name, namespace)]; ok {
		return t, nil
	}
	if t, ok := p.named[name]; ok {
		return t, nil
	}
	return nil, fmt.Errorf("type %q is not known", name)
}

func qualify(name, namespace string) string {
	if namespace == "" || strings.Contains(name, ".") {
		return name
	}
	return namespace + "." + name
}

func (p *parser) union(text json.RawMessage, namespace string) (*typ, error) {
	var branches []json.RawMessage
	if err := json.Unmarshal(text, &branches); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoSchema, err)
	}
	u := &typ{kind: kindUnion, name: "union"}
	for _, branch := range branches {
		t, err := p.parse(branch, namespace)
		if err != nil {
			return nil, err
		}
		if t.kind == kindUnion {
			return nil, errors.New("a union has a union as a branch")
		}
		u.branches = append(u.branches, t)
	}
	if len(branches) == 0 {
		return nil, errors.New("a union has no branch")
	}
	return u, nil
}

func (p *parser) define(d *definition, namespace string) (*typ, error) {
	var name string
	if json.Unmarshal(d.Type, &name) != nil {
		return p.parse(d.Type, namespace) // a type within an object
	}
	switch name {
	case "record", "error":
		return p.record(d, namespace)
	case "enum":
		return p.enum(d, namespace)
	case "fixed":
		t := &typ{kind: kindFixed, size: d.Size}
		if d.Size < 0 {
			return nil, fmt.Errorf("fixed %s has a negative size", d.Name)
		}
		t.annotate(d)
		_, err := p.name(t, d, namespace)
		return t, err
	case "array", "map":
		t, of := &typ{kind: kindArray, name: name}, d.Items
		if name == "map" {
			t.kind, of = kindMap, d.Values
		}
		var err error
		t.items, err = p.parse(of, namespace)
		return t, err
	}
	t, err := p.lookUp(name, namespace)
	if _, primitive := primitives[name]; err == nil && primitive {
		t.annotate(d)
	}
	return t, err
}

// name gives the type its full name, and returns the namespace within.
func (p *parser) name(t *typ, d *definition, namespace string) (within string, err error) {
	if d.Name == "" {
		return "", errors.New("a record, enum or fixed has no name")
	}
	if d.Namespace != nil {
		namespace = *d.Namespace
	}
	t.name = qualify(d.Name, namespace)
	if _, twice := p.named[t.name]; twice {
		return "", fmt.Errorf("type %s is defined twice", t.name)
	}
	p.named[t.name] = t
	if dot := strings.LastIndexByte(t.name, '.'); dot >= 0 {
		return t.name[:dot], nil
	}
	return "", nil
}

func (p *parser) record(d *definition, namespace string) (*typ, error) {
	t := &typ{kind: kindRecord, index: make(map[string]int, len(d.Fields))}
	within, err := p.name(t, d, namespace)
	if err != nil {
		return nil, err
	}
	t.fields = make([]field, len(d.Fields))
	for i, f := range d.Fields {
		if _, twice := t.index[f.Name]; twice || f.Name == "" {
			return nil, fmt.Errorf("record %s has the field %q twice, or without a name", t.name, f.Name)
		}
		t.index[f.Name] = i
		of, err := p.parse(f.Type, within)
		if err != nil {
			return nil, fmt.Errorf("field %s of %s: %w", f.Name, t.name, err)
		}
		t.fields[i] = field{name: f.Name, typ: of}
		if f.Default != nil {
			p.defaults = append(p.defaults, pending{t, i, f.Default})
		}
	}
	return t, nil
}

func (p *parser) enum(d *definition, namespace string) (*typ, error) {
	t := &typ{kind: kindEnum, symbols: make(map[string]int, len(d.Symbols))}
	if _, err := p.name(t, d, namespace); err != nil {
		return nil, err
	}
	for i, symbol := range d.Symbols {
		if _, twice := t.symbols[symbol]; twice {
			return nil, fmt.Errorf("enum %s has the symbol %q twice", t.name, symbol)
		}
		t.symbols[symbol] = i
	}
	return t, nil
}

// logicalKinds are the kinds with a logical type, ignored elsewhere.
var logicalKinds = map[string][]kind{
	"decimal": {kindBytes, kindFixed},
	"uuid":    {kindString, kindFixed},
	"date":    {kindInt}, "time-millis": {kindInt}, "time-micros": {kindLong},
	"timestamp-millis": {kindLong}, "timestamp-micros": {kindLong}, "timestamp-nanos": {kindLong},
	"local-timestamp-millis": {kindLong}, "local-timestamp-micros": {kindLong}, "local-timestamp-nanos": {kindLong},
}

// annotate sets a valid logical type. Others are ignored, as the specification says.
func (t *typ) annotate(d *definition) {
	var logical string
	if json.Unmarshal(d.LogicalType, &logical) != nil {
		return
	}
	fits := false
	for _, k := range logicalKinds[logical] {
		fits = fits || k == t.kind
	}
	if !fits || logical == "uuid" && t.kind == kindFixed && t.size != 16 {
		return
	}
	if logical == "decimal" {
		if json.Unmarshal(d.Precision, &t.precision) != nil || t.precision < 1 ||
			d.Scale != nil && json.Unmarshal(d.Scale, &t.scale) != nil || t.scale < 0 || t.scale > t.precision {
			t.precision, t.scale = 0, 0
			return
		}
	}
	t.logical = logical
}
