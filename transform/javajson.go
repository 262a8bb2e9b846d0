package transform

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// astral is the first byte in UTF-8 of the characters beyond U+FFFF.
const astral = 0xF0

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
		high, low := utf16.EncodeRune(c)
		out = fmt.Appendf(append(out, text[copied:i]...), `\u%04X\u%04X`, high, low)
		copied = i + size
		i = copied - 1
	}
	if copied == 0 {
		return text
	}
	return append(out, text[copied:]...)
}
