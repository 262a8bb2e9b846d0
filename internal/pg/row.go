package pg

import "time"

// Row is a changed row of a committed transaction.
type Row struct {
	Position   Position
	XID        uint32
	CommitTime time.Time
	// Relation is the same pointer until the server announces a change of the
	// table's definition, so it may key a cache.
	Relation *Relation
	// Values are the row's columns in the order of Relation.Columns.
	Values []Value
}

// Size is the number of bytes in the row's values.
func (r *Row) Size() int64 {
	var n int64
	for _, v := range r.Values {
		n += int64(len(v.Data))
	}
	return n
}

// Relation describes a table as announced by the server.
type Relation struct {
	OID       uint32
	Namespace string
	Name      string
	Columns   []Column
	// Unsent are columns of the table the stream does not have. The server
	// announces none of them; the catalogs tell.
	Unsent []UnsentColumn
}

// UnsentColumn is a column missing in the stream, with the reason and the remedy.
type UnsentColumn struct {
	Column
	Because, Remedy string
}

// UnknownModifier is the modifier of a domain's column.
const UnknownModifier = -2

// Column is a single column of a Relation.
type Column struct {
	Name string
	// Type is the type's OID; for a domain, the base type's if that is built
	// in.
	Type uint32
	// TypeName is the name, without the schema, of a type that is not built in; for a
	// domain, the base type's.
	TypeName string
	// Modifier is the type's modifier, such as numeric's precision and scale; -1: none;
	// UnknownModifier for a domain, where the stream has none.
	Modifier int32
	// Identity tells whether the column is part of the replica identity.
	Identity bool
	// Details are for columns read from the catalogs; the stream has none.
	Details ColumnDetails
}

// ColumnDetails are in the catalogs, and not in the stream. The zero value is unknown.
type ColumnDetails struct {
	NotNull bool
	// TypeName is the type's name, the domain's for a domain.
	TypeName string
	// Kind is pg_type.typtype of the type or, for a domain, of its base type: b, c, e, m, p, r.
	Kind byte
	// Labels are an enum's, or those of an array's elements, with commas between; ""
	// for other types.
	Labels string
	// Default is the expression of the column's DEFAULT; "" for none.
	Default string
}

// ValueKind tells NULL and unsent values from text.
type ValueKind uint8

// The kinds of Value, with pgoutput's letters.
const (
	Null           ValueKind = 'n'
	UnchangedToast ValueKind = 'u' // left alone by an UPDATE; not sent
	Text           ValueKind = 't'
	// A stream sends text only. Binary is for bytes without a text form.
	Binary ValueKind = 'b'
	// Garbled is text with characters without an equivalent in UTF-8, replaced by
	// U+FFFD.
	Garbled ValueKind = 'g'
)

// CopyText fills values from the columns of a result in text form, NULL where a
// column is nil. It copies their bytes, in one allocation: pgconn reuses the
// buffer.
func CopyText(values []Value, columns [][]byte) {
	size := 0
	for _, c := range columns {
		size += len(c)
	}
	buf := make([]byte, 0, size)
	for i, c := range columns {
		if c == nil {
			values[i] = Value{Kind: Null}
			continue
		}
		start := len(buf)
		buf = append(buf, c...)
		values[i] = Value{Kind: Text, Data: buf[start:len(buf):len(buf)]}
	}
}

// Value is a column's value in PostgreSQL's text form, or bytes.
type Value struct {
	Kind ValueKind
	Data []byte
}
