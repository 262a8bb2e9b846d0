package avro

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// union appends the number of the branch and the value. The branch:
//
//   - null: the branch null
//   - the only other branch, if there are two
//   - a number: the first numeric branch with room for the exact value
//   - a text: the branch string, else the only fitting branch
//   - an object: the only record with all members as fields and all fields without
//     default as members; without such a record, the branch map. With several records, an
//     object may also have the record's full name as its only member.
func (e *encoder) union(dst []byte, t *typ, at int) ([]byte, error) {
	branch, value, err := e.choose(t, at)
	if err != nil {
		return dst, err
	}
	return e.value(binary.AppendVarint(dst, int64(branch)), t.branches[branch], value)
}

// choose returns the branch, and the node of its value.
func (e *encoder) choose(t *typ, at int) (branch, value int, err error) {
	n := &e.nodes[at]
	var fitting []int
	for i, b := range t.branches {
		switch {
		case n.kind == 'n' && b.kind == kindNull:
			return i, at, nil
		case b.kind != kindNull:
			fitting = append(fitting, i)
		}
	}
	switch {
	case n.kind == 'n' || len(fitting) == 0:
		return 0, 0, t.noBranch(n)
	case len(fitting) == 1:
		return fitting[0], at, nil
	case n.kind == '{':
		return e.chooseObject(t, at, fitting)
	case n.kind == '"':
		branch, err = t.chooseText(n, fitting)
		return branch, at, err
	}
	for _, i := range fitting {
		b := t.branches[i]
		var err error
		switch {
		case isNumber(n):
			if b.kind == kindArray || b.kind == kindMap || b.kind == kindRecord || b.kind == kindBoolean {
				continue
			}
			if _, err = b.scalar(nil, n); err == nil && b.kind == kindFloat && t.has(kindDouble) {
				err = inFloat(n)
			}
		case n.kind == '[' && b.kind != kindArray, (n.kind == 't' || n.kind == 'f') && b.kind != kindBoolean:
			continue
		}
		if err == nil {
			return i, at, nil
		}
	}
	return 0, 0, t.noBranch(n)
}

func (t *typ) has(k kind) bool {
	return slices.ContainsFunc(t.branches, func(b *typ) bool { return b.kind == k })
}

var errRounded = errors.New("would be rounded more than in a double")

// inFloat is the error of a number for a double rather than a float.
func inFloat(n *node) error {
	v, err := strconv.ParseFloat(string(n.text), 64)
	if err == nil && float64(float32(v)) != v {
		err = errRounded
	}
	return err
}

// noBranch is the error of a value without a branch.
func (t *typ) noBranch(n *node) error {
	names := make([]string, len(t.branches))
	for i, b := range t.branches {
		names[i] = b.described()
	}
	of := typ{name: "union of " + strings.Join(names, ", ")}
	return of.unfit(n)
}

var errAmbiguous = errors.New("fits several branches of the union")

func (t *typ) chooseText(n *node, fitting []int) (int, error) {
	chosen := -1
	for _, i := range fitting {
		b := t.branches[i]
		if b.kind == kindString && b.logical == "" {
			return i, nil
		}
		switch b.kind {
		case kindArray, kindMap, kindRecord, kindBoolean:
			continue
		}
		if _, err := b.scalar(nil, n); err != nil {
			continue
		}
		if chosen >= 0 {
			return 0, fmt.Errorf("%.40s %w: %s and %s", n.text, errAmbiguous, t.branches[chosen].described(), b.described())
		}
		chosen = i
	}
	if chosen < 0 {
		return 0, t.noBranch(n)
	}
	return chosen, nil
}

func (e *encoder) chooseObject(t *typ, at int, fitting []int) (branch, value int, err error) {
	records, chosen, dictionary := 0, -1, -1
	only := at + 1 // the only member, perhaps
	for _, i := range fitting {
		b := t.branches[i]
		if b.kind == kindMap {
			dictionary = i
		}
		if b.kind != kindRecord {
			continue
		}
		records++
		fits, err := e.fits(b, at)
		if err != nil {
			return 0, 0, err
		}
		if fits && chosen >= 0 {
			return 0, 0, fmt.Errorf("the object %w: %s and %s; write {\"%s\": …}", errAmbiguous, t.branches[chosen].name, b.name, b.name)
		}
		if fits {
			chosen = i
		}
	}
	if chosen >= 0 {
		return chosen, at, nil
	}
	if records > 1 && only < e.nodes[at].end && e.nodes[only].end == e.nodes[at].end && e.nodes[only].kind == '{' {
		name, err := unquote(e.nodes[only].name)
		if err != nil {
			return 0, 0, err
		}
		for _, i := range fitting {
			if t.branches[i].kind == kindRecord && t.branches[i].name == string(name) {
				return i, only, nil
			}
		}
	}
	if dictionary >= 0 {
		return dictionary, at, nil
	}
	if records == 1 { // its own error says more
		for _, i := range fitting {
			if t.branches[i].kind == kindRecord {
				return i, at, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("the object fits no record of the union: %w", t.noBranch(&e.nodes[at]))
}

// fits reports whether the object's members are the record's fields, without a look at
// their values.
func (e *encoder) fits(t *typ, at int) (bool, error) {
	found := make(map[int]bool, len(t.fields))
	for member := at + 1; member < e.nodes[at].end; member = e.nodes[member].end {
		i, ok, err := e.fieldOf(t, member)
		if err != nil {
			return false, err
		}
		if !ok && !e.ignoreUnknown {
			return false, nil
		}
		if ok {
			found[i] = true
		}
	}
	for i := range t.fields {
		f := &t.fields[i]
		if found[i] || f.fallback != nil {
			continue
		}
		if _, err := f.typ.absent(nil); err != nil {
			return false, nil
		}
	}
	return true, nil
}
