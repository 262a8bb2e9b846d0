package pg

import "time"

// Row is one changed row of a committed transaction.
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

// Relation describes a table as the server announced it.
type Relation struct {
	OID       uint32
	Namespace string
	Name      string
	Columns   []Column
	// Unsent are columns of the table the stream does not have. The server
	// announces none of them; the catalogs tell.
	Unsent []UnsentColumn
}

// UnsentColumn is a column not in the stream, why, and the remedy for it.
type UnsentColumn struct {
	Column
	Because, Remedy string
}

// Column is a single column of a Relation.
type Column struct {
	Name string
	// Type is the type's OID; for a domain, that of the base type where that is a
	// built-in one.
	Type uint32
	// Identity tells whether the column is part of the replica identity.
	Identity bool
}

// ValueKind tells NULL and unsent values from text.
type ValueKind uint8

// The kinds of Value, with pgoutput's letters.
const (
	Null           ValueKind = 'n'
	UnchangedToast ValueKind = 'u' // an UPDATE left it alone; not sent
	Text           ValueKind = 't'
	// Binary does not come from a stream, which sends text. Binary is for bytes
	// that have no text form.
	Binary ValueKind = 'b'
	// Garbled is text with characters that have no equivalent in UTF-8, in the place
	// of which is U+FFFD.
	Garbled ValueKind = 'g'
)

// CopyText fills values from the columns of a result in text form, NULL where a
// column is nil. CopyText copies their bytes, in one allocation: pgconn reuses
// the buffer.
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
