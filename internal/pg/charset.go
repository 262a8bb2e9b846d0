package pg

import (
	"slices"
	"unicode/utf8"
)

// Charset is an encoding of PostgreSQL's with bytes without an equivalent in UTF-8. Asked
// for UTF-8, the server would end a stream, or a query, at such a byte. So the server
// sends text as stored, and the text is converted here, by the server's own table. A nil
// Charset is converted by the server.
type Charset struct {
	Name  string // the server's name
	forms map[uint32][]byte
	codes map[string][]byte // the other way round
	wide  map[byte]int      // bytes of a character, by its first
}

// NewCharset makes a charset of the UTF-8 form of each character beyond ASCII.
func NewCharset(name string, forms map[string][]byte) *Charset {
	c := &Charset{Name: name, forms: make(map[uint32][]byte, len(forms)), codes: make(map[string][]byte, len(forms)), wide: map[byte]int{}}
	for code, form := range forms {
		c.forms[number([]byte(code))] = form
		c.codes[string(form)] = []byte(code)
		c.wide[code[0]] = len(code)
	}
	return c
}

// number is a character of up to four bytes as a number.
func number(code []byte) (n uint32) {
	for _, b := range code {
		n = n<<8 | uint32(b)
	}
	return n
}

// UTF8 returns the text in UTF-8, unchanged if all ASCII. whole is false if a
// character has no equivalent and is replaced by U+FFFD.
func (c *Charset) UTF8(text []byte) (converted []byte, whole bool) {
	ascii := slices.IndexFunc(text, func(b byte) bool { return b >= utf8.RuneSelf })
	if c == nil || ascii < 0 {
		return text, true
	}
	converted = append(make([]byte, 0, len(text)+len(text)/2), text[:ascii]...)
	whole = true
	for i := ascii; i < len(text); {
		if text[i] < utf8.RuneSelf {
			converted = append(converted, text[i])
			i++
			continue
		}
		end := min(i+max(1, c.wide[text[i]]), len(text))
		form, ok := c.forms[number(text[i:end])]
		if !ok {
			form, whole = []byte(string(utf8.RuneError)), false
		}
		converted = append(converted, form...)
		i = end
	}
	return converted, whole
}

// Encode returns a name in the charset; characters without an equivalent stay
// as they are.
func (c *Charset) Encode(name string) string {
	if c == nil {
		return name
	}
	var text []byte
	for _, r := range name {
		if code, ok := c.codes[string(r)]; ok {
			text = append(text, code...)
		} else {
			text = utf8.AppendRune(text, r)
		}
	}
	return string(text)
}

// Convert converts the values of a row in place.
func (c *Charset) Convert(values []Value) {
	if c == nil {
		return
	}
	for i := range values {
		if v := &values[i]; v.Kind == Text {
			text, whole := c.UTF8(v.Data)
			v.Data = text
			if !whole {
				v.Kind = Garbled
			}
		}
	}
}
