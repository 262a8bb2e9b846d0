package transform

import (
	"encoding/base64"
	"errors"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

var errNotUTF8 = errors.New("the text is not valid UTF-8")

// appendJSON appends the column's value.
func (c column) appendJSON(dst []byte, v pg.Value) ([]byte, error) {
	if c.as == nil || v.Kind != pg.Text { // NULL, or the bytes of a message
		return appendJSON(dst, c.oid, v)
	}
	value, err := c.value(v.Data)
	if err != nil {
		return nil, err
	}
	return connectJSON(dst, value), nil
}

// appendJSON appends a column's value as Kafka Connect's JsonConverter shows it
// without schemas: NULL as null, integers and floats as numbers, bool as true
// and false, bytea in base64, and everything else, JSON included, as a string
// of the text. Not so: numeric is a number with the digits as they are, where
// Debezium's default is base64 of the unscaled value, and dates and times are
// PostgreSQL's text. NaN and Infinity are strings.
func appendJSON(dst []byte, oid uint32, v pg.Value) ([]byte, error) {
	if v.Kind == pg.Null {
		return append(dst, "null"...), nil
	}
	switch oid {
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.Float4OID, pgtype.Float8OID, pgtype.NumericOID:
		if isNumber(v.Data) {
			return append(dst, v.Data...), nil
		}
	case pgtype.BoolOID:
		if len(v.Data) == 1 && v.Data[0] == 't' {
			return append(dst, "true"...), nil
		}
		return append(dst, "false"...), nil
	case pgtype.ByteaOID:
		raw, err := column{oid: oid}.text(v)
		if err != nil {
			return nil, err
		}
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, raw)
		return append(dst, '"'), nil
	}
	if !utf8.Valid(v.Data) {
		return nil, errNotUTF8
	}
	return appendQuoted(dst, v.Data), nil
}

// isNumber tells PostgreSQL's numbers, which JSON writes alike, from NaN and
// the infinities.
func isNumber(b []byte) bool {
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	return len(b) > 0 && isDigit(b[0])
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// appendQuoted appends s, valid UTF-8, as a JSON string, escaping what RFC 8259
// §7 requires and no more, as Jackson does.
func appendQuoted[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	copied := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = appendEscaped(append(dst, s[copied:i]...), c)
		copied = i + 1
	}
	dst = append(dst, s[copied:]...)
	return append(dst, '"')
}

// appendEscaped appends an ASCII character of a JSON string.
func appendEscaped(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	}
	if c < ' ' {
		return appendEscape(dst, rune(c))
	}
	return append(dst, c)
}
