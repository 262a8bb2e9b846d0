package avro

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
)

// number is a JSON number, digits × 10^exponent, without zeros at either end of the digits.
type number struct {
	negative bool
	digits   []byte // none: zero
	exponent int
}

var errNumber = errors.New("is no number")

// largestExponent is beyond every type's range: nothing is computed with more.
const largestExponent = 10_000

// parseNumber reads a JSON number.
func parseNumber(text []byte) (n number, err error) {
	if len(text) > 0 && text[0] == '-' {
		n.negative, text = true, text[1:]
	}
	if len(text) == 0 || text[0] < '0' || text[0] > '9' {
		return n, errNumber
	}
	if at := bytes.IndexAny(text, "eE"); at >= 0 {
		if n.exponent, err = strconv.Atoi(string(text[at+1:])); err != nil || n.exponent > largestExponent || n.exponent < -largestExponent {
			return n, fmt.Errorf("%.40s is out of range", text)
		}
		text = text[:at]
	}
	n.digits = text
	if whole, fraction, ok := bytes.Cut(text, []byte(".")); ok {
		n.digits = append(append(make([]byte, 0, len(text)), whole...), fraction...)
		n.exponent -= len(fraction)
	}
	for _, c := range n.digits {
		if c < '0' || c > '9' {
			return n, errNumber
		}
	}
	n.digits = bytes.TrimLeft(n.digits, "0")
	short := bytes.TrimRight(n.digits, "0")
	n.exponent += len(n.digits) - len(short)
	n.digits = short
	if len(n.digits) == 0 {
		n.exponent = 0
	}
	return n, nil
}

// scaled is the number × 10^scale; ok is false beyond the whole numbers of so many
// digits.
func (n number) scaled(scale, most int) (unscaled *big.Int, ok bool) {
	zeros := n.exponent + scale
	if len(n.digits) > 0 && (zeros < 0 || len(n.digits)+zeros > most) {
		return nil, false
	}
	unscaled = new(big.Int)
	if len(n.digits) == 0 {
		return unscaled, true
	}
	unscaled.SetString(string(n.digits)+string(bytes.Repeat([]byte("0"), zeros)), 10)
	if n.negative {
		unscaled.Neg(unscaled)
	}
	return unscaled, true
}

// integer reads a whole number of so many bits; 12.0 and 1e3 are whole numbers.
func integer(text []byte, bits int) (int64, error) {
	if v, err := strconv.ParseInt(string(text), 10, bits); err == nil {
		return v, nil
	}
	n, err := parseNumber(text)
	if err != nil {
		return 0, err
	}
	unscaled, ok := n.scaled(0, 20)
	if !ok || !unscaled.IsInt64() || bits == 32 && int64(int32(unscaled.Int64())) != unscaled.Int64() {
		return 0, fmt.Errorf("%.40s is no whole number of %d bits", text, bits)
	}
	return unscaled.Int64(), nil
}

// float reads a number for a float of so many bits. A whole number must be exact.
func float(text []byte, bits int) (float64, error) {
	v, err := strconv.ParseFloat(string(text), bits)
	if err != nil {
		return 0, fmt.Errorf("%.40s is out of the range of a float of %d bits", text, bits)
	}
	if bytes.ContainsAny(text, ".eE") {
		return v, nil
	}
	exact := 15 // so many digits are always exact
	if bits == 32 {
		exact = 7
	}
	if len(text) <= exact {
		return v, nil
	}
	whole, _ := new(big.Int).SetString(string(text), 10)
	held, _ := new(big.Float).SetFloat64(v).Int(nil)
	if whole == nil || whole.Cmp(held) != 0 {
		return 0, fmt.Errorf("a float of %d bits cannot hold %.40s", bits, text)
	}
	return v, nil
}

// floatWords are the values without a number in JSON.
var floatWords = map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}

// decimal reads a number, or its text in a string, as the unscaled value in two's
// complement.
func (t *typ) decimal(text []byte) ([]byte, error) {
	n, err := parseNumber(text)
	if err != nil {
		return nil, err
	}
	unscaled, ok := n.scaled(t.scale, t.precision)
	if !ok {
		return nil, fmt.Errorf("%.40s is no decimal of precision %d and scale %d", text, t.precision, t.scale)
	}
	out := twosComplement(unscaled)
	if t.kind != kindFixed {
		return out, nil
	}
	if len(out) > t.size {
		return nil, fmt.Errorf("%.40s has no room in %d bytes", text, t.size)
	}
	sign := byte(0)
	if unscaled.Sign() < 0 {
		sign = 0xff
	}
	return append(bytes.Repeat([]byte{sign}, t.size-len(out)), out...), nil
}

// twosComplement is big-endian, as short as possible.
func twosComplement(n *big.Int) []byte {
	if n.Sign() >= 0 {
		out := n.Bytes()
		if len(out) == 0 || out[0]&0x80 != 0 {
			out = append([]byte{0}, out...)
		}
		return out
	}
	size := uint(new(big.Int).Not(n).BitLen()/8 + 1)
	return new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), 8*size)).FillBytes(make([]byte, size))
}
