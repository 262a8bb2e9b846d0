package avro

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

var errHalfPair = errors.New("has half of a surrogate pair, which is no character")

// unquote returns the text of a valid JSON string with quotes, from the string itself
// where it has no escapes.
func unquote(quoted []byte) ([]byte, error) {
	s := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			out = append(out, s[i])
			i++
			continue
		}
		c := s[i+1]
		i += 2
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex4(s[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				if !bytes.HasPrefix(s[i:], []byte(`\u`)) {
					return nil, errHalfPair
				}
				if r = utf16.DecodeRune(r, hex4(s[i+2:])); r == utf8.RuneError {
					return nil, errHalfPair
				}
				i += 6
			}
			out = utf8.AppendRune(out, r)
			continue
		}
		out = append(out, c)
	}
	return out, nil
}

// hex4 reads the four digits of a valid escape.
func hex4(s []byte) rune {
	n, _ := strconv.ParseUint(string(s[:4]), 16, 16)
	return rune(n)
}
