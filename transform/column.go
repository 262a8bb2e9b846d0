package transform

import (
	"encoding/hex"
	"errors"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// column is a column of a bound table; the zero column is absent.
type column struct {
	present bool
	index   int
	oid     uint32
	name    string
	as      *conversion // Debezium's, or nil
	compat  *columnCompat
}

// columnCompat is, under CompatDebezium, more of a column's form; nil otherwise.
type columnCompat struct {
	standard []byte // the text shown for NULL; nil: none
	schema   []byte // JSON of the Connect schema; nil without schemas
}

// value is the column's conversion of a text. A value without a form is as NULL.
func (c column) value(text []byte) (connectValue, error) {
	v, err := c.as.convert(text)
	if err == nil && v == nil && c.compat.standard != nil {
		return c.as.convert(c.compat.standard)
	}
	return v, err
}

var (
	trueText  = []byte("true")
	falseText = []byte("false")
	emptyText = []byte{}

	errBytea = errors.New("bytea is not in hex format")
)

// text returns the value as record keys, headers and raw payloads have it:
// bytea as the bytes, bool as true and false (what a cast to text gives, and
// Kafka Connect), anything else as PostgreSQL's text. nil for NULL only.
func (c column) text(v pg.Value) ([]byte, error) {
	switch {
	case v.Kind == pg.Null:
		return nil, nil
	case c.oid == pgtype.ByteaOID && v.Kind == pg.Text:
		return decodeBytea(v.Data)
	case c.oid == pgtype.BoolOID && len(v.Data) == 1:
		if v.Data[0] == 't' {
			return trueText, nil
		}
		return falseText, nil
	case v.Data == nil:
		return emptyText, nil
	}
	return v.Data, nil
}

// validText reports whether b, the column's text, may stand where readers
// expect UTF-8. PostgreSQL checks that itself, except in databases with the
// encoding SQL_ASCII.
func (c column) validText(b []byte) bool { return c.oid == pgtype.ByteaOID || utf8.Valid(b) }

// decodeBytea reads bytea's hex format, \xDEADBEEF, into new memory.
func decodeBytea(data []byte) ([]byte, error) {
	if len(data) < 2 || data[0] != '\\' || data[1] != 'x' {
		return nil, errBytea
	}
	out := make([]byte, hex.DecodedLen(len(data)-2))
	if _, err := hex.Decode(out, data[2:]); err != nil {
		return nil, errBytea
	}
	return out, nil
}
