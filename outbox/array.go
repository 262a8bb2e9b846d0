package outbox

import "encoding/hex"

// array builds an array in PostgreSQL's text form, {"a","b",NULL}.
type array []byte

// String returns the array with the braces.
func (a *array) String() string {
	if len(*a) == 0 {
		return "{}"
	}
	return string(append(*a, '}'))
}

// next begins an element.
func (a *array) next() {
	if len(*a) == 0 {
		*a = append(*a, '{')
		return
	}
	*a = append(*a, ',')
}

// plain adds an element needing no quotes.
func (a *array) plain(s string) {
	a.next()
	*a = append(*a, s...)
}

// text adds an element of text.
func (a *array) text(s string) {
	a.next()
	*a = append(*a, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			*a = append(*a, '\\')
		}
		*a = append(*a, s[i])
	}
	*a = append(*a, '"')
}

// nullable adds an element of text, or NULL for nil.
func (a *array) nullable(b []byte) {
	if b == nil {
		a.plain("NULL")
		return
	}
	a.text(string(b))
}

// bytea adds an element of bytes in hex format, or NULL for nil. The format's
// backslash is doubled, as all in quotes are.
func (a *array) bytea(b []byte) {
	if b == nil {
		a.plain("NULL")
		return
	}
	a.next()
	*a = append(*a, `"\\x`...)
	*a = hex.AppendEncode(*a, b)
	*a = append(*a, '"')
}
