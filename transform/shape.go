package transform

import (
	"bytes"
	"slices"
	"strings"
)

// shape is the Connect schema inferred from JSON, as by Debezium. All are optional,
// except for the merged shape of unlike objects.
type shape struct {
	kind     jsonKind // jsonNull: bytes, the schema of null
	required bool
	named    bool
	name     string       // of an object, in JSON without quotes
	fields   []shapeField // of an object
	items    *shape       // of an array
}

// shapeField is a field of an object's shape.
type shapeField struct {
	name  []byte // as in jsonNode
	shape *shape
}

// shaper infers shapes and writes values by them. A shape is valid until the next read.
type shaper struct {
	jsonTree
	opts   expandOptions
	shapes []shape      // in use
	fields []shapeField // in use, and room
}

// read reads the next document.
func (s *shaper) read(src []byte) error {
	s.shapes, s.fields = again(s.shapes), again(s.fields)
	return s.jsonTree.read(src)
}

// add returns a shape like the given.
func (s *shaper) add(like shape) *shape {
	s.shapes = append(s.shapes, like) // earlier shapes stay where they are
	return &s.shapes[len(s.shapes)-1]
}

// room returns an empty list with a capacity.
func (s *shaper) room(fields int) []shapeField {
	begin := len(s.fields)
	if cap(s.fields)-begin < fields {
		begin, s.fields = 0, make([]shapeField, 0, max(2*cap(s.fields), fields))
	}
	end := begin + fields
	s.fields = s.fields[:end]
	return s.fields[begin:begin:end]
}

// scalars are the shapes of scalars, by kind.
var scalars = func() (all [jsonArray + 1]shape) {
	for kind := range all {
		all[kind].kind = jsonKind(kind)
	}
	return all
}()

// infer returns the shape of a value under the key; nil: a member with the value is
// left out. named: there is a key.
func (s *shaper) infer(at int32, key string, named bool) (*shape, error) {
	n := &s.nodes[at]
	switch n.kind {
	case jsonObject:
		return s.inferObject(n, key, named)
	case jsonArray:
		switch {
		case n.children > 0:
			items, err := s.inferItems(n, key, named)
			return s.add(shape{kind: jsonArray, items: items}), err
		case s.opts.keepEmptyArray:
			return s.add(shape{kind: jsonArray, items: &scalars[jsonString]}), nil
		}
		return nil, nil
	case jsonNull:
		if !s.opts.keepNull {
			return nil, nil
		}
	case jsonBigInteger:
		return &scalars[jsonDouble], nil
	}
	return &scalars[n.kind], nil
}

func (s *shaper) inferObject(n *jsonNode, key string, named bool) (*shape, error) {
	out := s.add(shape{kind: jsonObject, named: named, name: key, fields: s.room(int(n.children))})
	for m := n.first; m != 0; m = s.nodes[m].next {
		name := s.nodes[m].name
		var inner string
		if kind := s.nodes[m].kind; kind == jsonObject || kind == jsonArray {
			inner = string(name[1 : len(name)-1])
			if named && !blankJSON(key) {
				inner = key + "." + inner
			}
		}
		of, err := s.infer(m, inner, true)
		switch {
		case err != nil:
			return nil, err
		case of == nil:
			continue
		case len(name) == len(`""`):
			return nil, errEmptyName
		}
		out.fields = append(out.fields, shapeField{name, of})
	}
	return out, nil
}

// inferItems returns the shape of an array's elements: the first element's, or the
// shape of all objects together.
func (s *shaper) inferItems(n *jsonNode, key string, named bool) (*shape, error) {
	sample, err := s.sample(n)
	switch {
	case err != nil:
		return nil, err
	case sample == 0:
		if !s.opts.keepNull {
			return nil, errUntypedArray
		}
		return &scalars[jsonNull], nil
	case s.nodes[sample].kind != jsonObject:
		out, err := s.infer(sample, "", false)
		if err == nil && out == nil {
			err = errUntypedArray
		}
		return out, err
	}
	var merged *shape
	for e := sample; e != 0; e = s.nodes[e].next {
		if s.nodes[e].kind != jsonObject {
			continue
		}
		of, err := s.infer(e, key, named)
		if err != nil {
			return nil, err
		}
		if merged == nil {
			merged = of
			continue
		}
		of.required = merged.required
		if !merged.equal(of) {
			merged = merged.merge(of)
			merged.required = true
		}
	}
	return merged, nil
}

// sample returns the first element other than null, 0 without any; the others must be
// of the same type.
func (s *shaper) sample(n *jsonNode) (first int32, err error) {
	for e := n.first; e != 0; e = s.nodes[e].next {
		switch k := s.nodes[e].kind; {
		case k == jsonNull:
		case first == 0:
			first = e
		case !sameType(s.nodes[first].kind, k):
			return 0, errMixedArray
		}
	}
	return first, nil
}

// sameType: a number beyond 64 bits counts as a double.
func sameType(a, b jsonKind) bool {
	return a == b || isDouble(a) && isDouble(b)
}

func isDouble(k jsonKind) bool { return k == jsonDouble || k == jsonBigInteger }

func (a *shape) equal(b *shape) bool {
	if a.kind != b.kind || a.required != b.required || a.items != nil && !a.items.equal(b.items) {
		return false
	}
	return slices.EqualFunc(a.fields, b.fields, func(x, y shapeField) bool { return bytes.Equal(x.name, y.name) && x.shape.equal(y.shape) })
}

// merge returns the shape of objects of both shapes, with a's fields first. Debezium
// takes either first, as Java's hashes have it, and of objects within objects keeps
// one's fields only.
func (a *shape) merge(b *shape) *shape {
	switch {
	case a.kind == jsonNull:
		return b
	case a.kind != b.kind:
		return a
	case a.kind == jsonArray:
		return &shape{kind: jsonArray, items: a.items.merge(b.items)}
	case a.kind != jsonObject:
		return a
	}
	out := &shape{kind: jsonObject, required: a.required, named: a.named, name: a.name, fields: slices.Clone(a.fields)}
	index := make(map[string]int, len(out.fields))
	for i, f := range out.fields {
		index[string(f.name)] = i
	}
	for _, f := range b.fields {
		if i, ok := index[string(f.name)]; ok {
			out.fields[i].shape = out.fields[i].shape.merge(f.shape)
			continue
		}
		index[string(f.name)] = len(out.fields)
		out.fields = append(out.fields, f)
	}
	return out
}

// append appends the value as JsonConverter writes it by the shape.
func (s *shaper) append(dst []byte, at int32, by *shape) ([]byte, error) {
	n := &s.nodes[at]
	switch {
	case n.kind == jsonNull && !by.required:
		return append(dst, n.text...), nil
	case n.kind != by.kind:
		return nil, errMixedArray
	case n.kind == jsonArray:
		return s.appendArray(dst, n, by.items)
	case n.kind == jsonObject:
		return s.appendObject(dst, at, by)
	}
	return append(dst, n.text...), nil
}

func (s *shaper) appendArray(dst []byte, n *jsonNode, items *shape) ([]byte, error) {
	dst = append(dst, '[')
	for e := n.first; e != 0; e = s.nodes[e].next {
		if e != n.first {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = s.append(dst, e, items); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

// appendObject writes all fields of the shape, null where the object has no such
// member.
func (s *shaper) appendObject(dst []byte, at int32, by *shape) ([]byte, error) {
	n := &s.nodes[at]
	var known map[string]int32
	next := n.first // most often the field's member
	dst = append(dst, '{')
	for i, f := range by.fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, f.name...), ':')
		for next != 0 && s.nodes[next].kind == jsonNull && !bytes.Equal(s.nodes[next].name, f.name) {
			next = s.nodes[next].next // left out
		}
		m := next
		if m == 0 || !bytes.Equal(s.nodes[m].name, f.name) {
			if known == nil && n.children >= manyMembers {
				known = s.index(at)
			}
			m = s.member(at, f.name, known)
		}
		if m == 0 {
			dst = append(dst, "null"...)
			continue
		}
		next = s.nodes[m].next
		var err error
		if dst, err = s.append(dst, m, f.shape); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// appendSchema appends the shape as JsonConverter writes a schema.
func (a *shape) appendSchema(dst []byte) []byte {
	dst = append(append(dst, `{"type":"`...), a.typeName()...)
	dst = append(dst, '"')
	switch a.kind {
	case jsonArray:
		dst = a.items.appendSchema(append(dst, `,"items":`...))
	case jsonObject:
		dst = append(dst, `,"fields":[`...)
		for i, f := range a.fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = f.shape.appendSchema(dst)
			dst = append(append(dst[:len(dst)-1], `,"field":`...), f.name...)
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	if a.required {
		dst = append(dst, `,"optional":false`...)
	} else {
		dst = append(dst, `,"optional":true`...)
	}
	if a.kind == jsonObject && a.named {
		dst = append(append(append(dst, `,"name":"`...), a.name...), '"')
	}
	return append(dst, '}')
}

func (a *shape) typeName() string {
	return [...]string{
		jsonNull: "bytes", jsonBool: "boolean", jsonString: "string", jsonInt32: "int32", jsonInt64: "int64",
		jsonBigInteger: "double", jsonDouble: "double", jsonObject: "struct", jsonArray: "array",
	}[a.kind]
}

// blankJSON reports whether the content of a JSON string is blank for Java's trim.
func blankJSON(inner string) bool {
	if inner == "" {
		return true
	}
	if inner[0] != ' ' && inner[0] != '\\' {
		return false
	}
	return strings.Trim(string(unquoted([]byte(`"`+inner+`"`))), blankCharacters) == ""
}

// blankCharacters are those up to the space.
var blankCharacters = func() string {
	var all strings.Builder
	for c := range ' ' + 1 {
		all.WriteByte(byte(c))
	}
	return all.String()
}()
