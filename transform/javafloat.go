package transform

import (
	"bytes"
	"math"
	"strconv"
)

// appendJavaFloat appends f as Java's Double.toString or Float.toString do from
// release 19 on: the shortest digits that read back as f, at least two of them, and
// an exponent below 10^-3 and from 10^7 on.
func appendJavaFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	case f == 0 && math.Signbit(f):
		return append(dst, "-0.0"...)
	case f == 0:
		return append(dst, "0.0"...)
	}
	if abs := math.Abs(f); abs >= 1e-3 && abs < 1e7 {
		before := len(dst)
		dst = strconv.AppendFloat(dst, f, 'f', -1, bits)
		if bytes.IndexByte(dst[before:], '.') < 0 {
			dst = append(dst, ".0"...)
		}
		return dst
	}
	return appendScientific(dst, f, bits)
}

func appendScientific(dst []byte, f float64, bits int) []byte {
	var room [32]byte
	text := strconv.AppendFloat(room[:0], f, 'e', -1, bits)
	digits, exponent, _ := bytes.Cut(text, []byte{'e'})
	if !bytes.Contains(digits, []byte{'.'}) { // a single digit: the nearest two
		text = strconv.AppendFloat(room[:0], f, 'e', 1, bits)
		digits, exponent, _ = bytes.Cut(text, []byte{'e'})
	}
	dst = append(append(dst, digits...), 'E')
	n, _ := strconv.Atoi(string(exponent)) // without + and leading zeros
	return strconv.AppendInt(dst, int64(n), 10)
}

// appendJSONFloat appends f as Jackson does: a string for all that JSON has no
// number for.
func appendJSONFloat(dst []byte, f float64, bits int) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		dst = append(dst, '"')
		dst = appendJavaFloat(dst, f, bits)
		return append(dst, '"')
	}
	return appendJavaFloat(dst, f, bits)
}
