package transform

import (
	"unicode/utf16"
	"unicode/utf8"
)

// astral is the first byte in UTF-8 of the characters beyond U+FFFF.
const astral = 0xF0

const upperHex = "0123456789ABCDEF"

// escapeAstral writes characters beyond U+FFFF as two escapes, as Jackson does. All
// characters beyond ASCII are in strings.
func escapeAstral(text []byte) []byte {
	copied := 0
	var out []byte
	for i := 0; i < len(text); i++ {
		if text[i] < astral {
			continue
		}
		c, size := utf8.DecodeRune(text[i:])
		out = appendSurrogates(append(out, text[copied:i]...), c)
		copied = i + size
		i = copied - 1
	}
	if copied == 0 {
		return text
	}
	return append(out, text[copied:]...)
}

// appendSurrogates appends a character beyond U+FFFF as two escapes.
func appendSurrogates(dst []byte, c rune) []byte {
	high, low := utf16.EncodeRune(c)
	return appendEscape(appendEscape(dst, high), low)
}

func appendEscape(dst []byte, unit rune) []byte {
	return append(dst, '\\', 'u', upperHex[unit>>12&15], upperHex[unit>>8&15], upperHex[unit>>4&15], upperHex[unit&15])
}

// appendUnit appends a unit of UTF-16 to a JSON string in Jackson's spelling: half a
// character is escaped, for want of another form.
func appendUnit(dst []byte, unit rune) []byte {
	switch {
	case utf16.IsSurrogate(unit):
		return appendEscape(dst, unit)
	case unit < utf8.RuneSelf:
		return appendEscaped(dst, byte(unit))
	}
	return utf8.AppendRune(dst, unit)
}
