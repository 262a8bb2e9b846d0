package transform

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func convertInteger(text []byte) (connectValue, error) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err
}

func convertFloat4(text []byte) (connectValue, error) {
	f, err := strconv.ParseFloat(string(text), 32)
	return float32(f), err
}

func convertFloat8(text []byte) (connectValue, error) { return parseDouble(text) }

func parseDouble(text []byte) (float64, error) { return strconv.ParseFloat(string(text), 64) }

// special are numeric's values without digits, and Java's names for them.
var special = map[string]string{"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}

// numericHeader is what PostgreSQL adds to a modifier, VARHDRSZ.
const numericHeader = 4

// numeric is for numeric with the modifier: a decimal of the column's scale or, for a
// column without one, a struct with the value's own.
func (h Handling) numeric(modifier int32) *conversion {
	switch h.Decimal {
	case DecimalDouble:
		return &conversion{convert: convertFloat8, textual: true}
	case DecimalString:
		return &conversion{textual: true, convert: func(text []byte) (connectValue, error) {
			if name, ok := special[string(text)]; ok {
				return name, nil
			}
			return string(text), nil
		}}
	}
	variable := modifier < numericHeader
	_, scale := numericModifier(modifier)
	return &conversion{textual: !variable, convert: func(text []byte) (connectValue, error) {
		if _, ok := special[string(text)]; ok {
			return nil, nil
		}
		d, ok := parseDecimal(text)
		if !ok {
			return nil, errForm("numeric", text)
		}
		if !variable {
			return d.rescale(scale), nil
		}
		d = d.strip()
		return object{{"scale", int64(d.scale)}, {"value", twosComplement(d.unscaled)}}, nil
	}}
}

// numericModifier reads a modifier: sixteen bits of precision, and eleven of the scale,
// signed.
func numericModifier(modifier int32) (precision, scale int) {
	modifier -= numericHeader
	return int(uint32(modifier) >> 16), int(int32(uint32(modifier)<<21) >> 21)
}

// money is a decimal in the locale C or en_US; other locales fail here and there.
func (h Handling) money() *conversion {
	return &conversion{textual: true, convert: func(text []byte) (connectValue, error) {
		digits := make([]byte, 0, len(text))
		for _, c := range text {
			if c != '$' && c != ',' {
				digits = append(digits, c)
			}
		}
		d, ok := parseDecimal(digits)
		if !ok {
			return nil, errForm("money", text)
		}
		if h.Decimal == DecimalString {
			return string(digits), nil
		}
		d = d.rescale(h.MoneyDigits)
		if h.Decimal == DecimalDouble {
			return parseDouble(d.append(nil))
		}
		return d, nil
	}}
}

// bytea is bytes, or their text.
func (h Handling) bytea() *conversion {
	encode := map[string]func([]byte) string{
		BinaryBase64:    base64.StdEncoding.EncodeToString,
		BinaryBase64URL: base64.URLEncoding.EncodeToString,
		BinaryHex:       hex.EncodeToString,
	}[h.Binary]
	return &conversion{bytes: encode == nil, textual: encode != nil, convert: func(text []byte) (connectValue, error) {
		data, err := decodeBytea(text)
		if err != nil || encode == nil {
			return data, err
		}
		return encode(data), nil
	}}
}

// bits are a bool for a single bit, and otherwise bytes, the last bit the lowest of the
// first, without zeros before the first bit set.
func bits(c pg.Column) *conversion {
	if c.Modifier == 1 {
		return &conversion{textual: true, convert: func(text []byte) (connectValue, error) { return string(text) == "1", nil }}
	}
	return &conversion{bytes: true, convert: func(text []byte) (connectValue, error) {
		text = bytes.TrimLeft(text, "0")
		out := make([]byte, (len(text)+7)/8)
		for i, bit := range text {
			if at := len(text) - 1 - i; bit == '1' {
				out[at/8] |= 1 << (at % 8)
			}
		}
		return out, nil
	}}
}

// convertPoint makes a struct with the coordinates and the point in well-known
// binary.
func convertPoint(text []byte) (connectValue, error) {
	first, second, ok := bytes.Cut(bytes.Trim(text, "()"), []byte{','})
	x, errX := parseDouble(first)
	y, errY := parseDouble(second)
	if !ok || errX != nil || errY != nil {
		return nil, errForm("point", text)
	}
	wkb := []byte{1, 1, 0, 0, 0} // little endian, a point
	wkb = binary.LittleEndian.AppendUint64(wkb, math.Float64bits(x))
	wkb = binary.LittleEndian.AppendUint64(wkb, math.Float64bits(y))
	return object{{"x", x}, {"y", y}, {"wkb", wkb}, {"srid", nil}}, nil
}
