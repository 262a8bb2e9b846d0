package transform

import (
	"bytes"
	"cmp"
	"slices"
	"unicode/utf16"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// elementTypes are the arrays that Debezium writes, with the types of their elements.
var elementTypes = map[uint32]uint32{
	pgtype.BoolArrayOID: pgtype.BoolOID, pgtype.Int2ArrayOID: pgtype.Int2OID, pgtype.Int4ArrayOID: pgtype.Int4OID,
	pgtype.Int8ArrayOID: pgtype.Int8OID, pgtype.Float4ArrayOID: pgtype.Float4OID, pgtype.Float8ArrayOID: pgtype.Float8OID,
	pgtype.NumericArrayOID: pgtype.NumericOID, pgtype.TextArrayOID: pgtype.TextOID, pgtype.VarcharArrayOID: pgtype.VarcharOID,
	pgtype.BPCharArrayOID: pgtype.BPCharOID, pgtype.UUIDArrayOID: pgtype.UUIDOID, pgtype.JSONArrayOID: pgtype.JSONOID,
	pgtype.JSONBArrayOID: pgtype.JSONBOID, pgtype.ByteaArrayOID: pgtype.ByteaOID, pgtype.InetArrayOID: pgtype.InetOID,
	pgtype.CIDRArrayOID: pgtype.CIDROID, pgtype.MacaddrArrayOID: pgtype.MacaddrOID, pgtype.DateArrayOID: pgtype.DateOID,
	pgtype.TimeArrayOID: pgtype.TimeOID, pgtype.TimestampArrayOID: pgtype.TimestampOID, pgtype.TimestamptzArrayOID: pgtype.TimestamptzOID,
}

// list is for an array with such elements. An array within it is null, as there.
func (h Handling) list(element pg.Column) (*conversion, error) {
	inner, err := h.of(element)
	if err != nil {
		return nil, err
	}
	of := func(text []byte) (connectValue, error) { return plainValue(element.Type, text), nil }
	textual := true
	if inner != nil {
		of, textual = inner.convert, inner.textual
	}
	return &conversion{textual: textual, convert: func(text []byte) (connectValue, error) {
		items, ok := parseArray(text)
		if !ok {
			return nil, errForm("array", text)
		}
		list := make([]connectValue, len(items))
		for i, item := range items {
			if item == nil {
				continue
			}
			if list[i], err = of(item); err != nil {
				return nil, err
			}
		}
		return list, nil
	}}, nil
}

// plainValue is the value of a type without a conversion.
func plainValue(oid uint32, text []byte) connectValue {
	switch oid {
	case pgtype.BoolOID:
		return string(text) == "t"
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		if n, err := convertInteger(text); err == nil {
			return n
		}
	}
	return string(text)
}

// parseArray splits an array's text; nil is NULL or an array within.
func parseArray(text []byte) (items [][]byte, ok bool) {
	if bytes.HasPrefix(text, []byte{'['}) { // [2:3]={…}
		_, text, _ = bytes.Cut(text, []byte{'='})
	}
	if len(text) < 2 || text[0] != '{' || text[len(text)-1] != '}' {
		return nil, false
	}
	for text = text[1 : len(text)-1]; len(text) > 0; {
		var item []byte
		if text[0] == '{' {
			text = text[nested(text):]
		} else {
			var quoted bool
			item, text, quoted = token(text, ',')
			if !quoted && string(item) == "NULL" {
				item = nil
			}
		}
		items = append(items, item)
		text = bytes.TrimPrefix(text, []byte{','})
	}
	return items, true
}

// nested is the length of the array that text begins with.
func nested(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			_, rest, _ := token(text[i:], ',')
			i = len(text) - len(rest) - 1
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// token reads a value up to the delimiter or, if quoted, up to the quote.
func token(text []byte, delimiter byte) (value, rest []byte, quoted bool) {
	value = []byte{}
	if len(text) == 0 || text[0] != '"' {
		end := bytes.IndexByte(text, delimiter)
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], false
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return value, text[i+1:], true
		case '\\':
			i++
		}
		if i < len(text) {
			value = append(value, text[i])
		}
	}
	return value, nil, true
}

// hstore is a map or its JSON, with the pairs in the order of Java's HashMap.
func (h Handling) hstore() *conversion {
	return &conversion{textual: true, convert: func(text []byte) (connectValue, error) {
		var pairs object
		for len(text) > 0 {
			name, rest, quoted := token(text, '=')
			rest, arrow := bytes.CutPrefix(rest, []byte("=>"))
			if !quoted || !arrow {
				return nil, errForm("hstore", text)
			}
			value, rest, quoted := token(rest, ',')
			pair := member{name: string(name)}
			if quoted {
				pair.value = string(value)
			}
			pairs = append(pairs, pair)
			text = bytes.TrimPrefix(rest, []byte(", "))
		}
		inHashOrder(pairs)
		if h.HStore == HStoreMap {
			return pairs, nil
		}
		return string(connectJSON(nil, pairs)), nil
	}}
}

// inHashOrder sorts as Java's HashMap iterates: by bucket, and within it in the
// order of insertion.
func inHashOrder(pairs object) {
	buckets := uint32(16)
	for len(pairs)*4 > int(buckets)*3 {
		buckets *= 2
	}
	bucket := func(name string) uint32 {
		hash := uint32(0)
		for _, unit := range utf16.Encode([]rune(name)) {
			hash = 31*hash + uint32(unit)
		}
		return (hash ^ hash>>16) & (buckets - 1)
	}
	slices.SortStableFunc(pairs, func(a, b member) int { return cmp.Compare(bucket(a.name), bucket(b.name)) })
}
