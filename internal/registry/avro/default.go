package avro

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// appendDefault appends the value of a field's default. Defaults have a form of their own
// in schemas: a union's is of the first fitting branch, bytes are
// characters up to U+00FF, and logical types count as the types beneath.
func appendDefault(dst []byte, t *typ, text json.RawMessage) ([]byte, error) {
	var d document
	if err := d.read(text); err != nil {
		return nil, err
	}
	w := defaults{document: d, open: map[*typ]bool{}}
	return w.value(dst, t, 0)
}

// defaults writes a default. open are the records being written: a default of itself
// has no end.
type defaults struct {
	document
	open map[*typ]bool
}

func (d *defaults) value(dst []byte, t *typ, at int) ([]byte, error) {
	n := &d.nodes[at]
	switch {
	case t.kind == kindUnion:
		for i, branch := range t.branches {
			if out, err := d.value(binary.AppendVarint(dst, int64(i)), branch, at); err == nil {
				return out, nil
			}
		}
		return nil, t.noBranch(n)
	case t.kind == kindRecord && n.kind == '{':
		return d.record(dst, t, at)
	case (t.kind == kindArray || t.kind == kindMap) && n.kind == map[kind]byte{kindArray: '[', kindMap: '{'}[t.kind]:
		return d.block(dst, t, at)
	case (t.kind == kindBytes || t.kind == kindFixed) && n.kind == '"':
		return t.latin1(dst, n)
	}
	plain := *t
	plain.logical = ""
	e := encoder{document: d.document}
	return e.value(dst, &plain, at)
}

func (d *defaults) record(dst []byte, t *typ, at int) ([]byte, error) {
	if d.open[t] {
		return nil, fmt.Errorf("the default of %s contains itself", t.name)
	}
	d.open[t] = true
	defer delete(d.open, t)
	e := encoder{document: d.document}
	base, err := e.match(t, at)
	if err != nil {
		return nil, err
	}
	for i := range t.fields {
		f, member := &t.fields[i], e.members[base+i]
		switch {
		case member != 0:
			dst, err = d.value(dst, f.typ, member)
		case f.fallback != nil:
			dst = append(dst, f.fallback...)
		default:
			dst, err = f.typ.absent(dst)
		}
		if err != nil {
			return nil, within(err, "."+f.name)
		}
	}
	return dst, nil
}

func (d *defaults) block(dst []byte, t *typ, at int) ([]byte, error) {
	count := 0
	for element := at + 1; element < d.nodes[at].end; element = d.nodes[element].end {
		count++
	}
	if count > 0 {
		dst = binary.AppendVarint(dst, int64(count))
	}
	for element := at + 1; element < d.nodes[at].end; element = d.nodes[element].end {
		if t.kind == kindMap {
			name, err := unquote(d.nodes[element].name)
			if err != nil {
				return nil, err
			}
			dst = append(binary.AppendVarint(dst, int64(len(name))), name...)
		}
		var err error
		if dst, err = d.value(dst, t.items, element); err != nil {
			return nil, err
		}
	}
	return append(dst, 0), nil
}

// latin1 appends bytes written as characters.
func (t *typ) latin1(dst []byte, n *node) ([]byte, error) {
	text, err := unquote(n.text)
	if err != nil {
		return nil, err
	}
	var data []byte
	for _, c := range string(text) {
		if c > 0xff {
			return nil, fmt.Errorf("%.40s has a character beyond U+00FF", n.text)
		}
		data = append(data, byte(c))
	}
	if t.kind == kindFixed {
		if len(data) != t.size {
			return nil, fmt.Errorf("%d bytes are not the %d of %s", len(data), t.size, t.name)
		}
		return append(dst, data...), nil
	}
	return append(binary.AppendVarint(dst, int64(len(data))), data...), nil
}
