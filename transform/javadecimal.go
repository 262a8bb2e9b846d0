package transform

import (
	"bytes"
	"math/big"
	"strconv"
	"strings"
)

// parseDecimal reads PostgreSQL's text of a finite numeric. The scale is the number
// of digits behind the point.
func parseDecimal(text []byte) (d decimal, ok bool) {
	whole, fraction, _ := bytes.Cut(text, []byte{'.'})
	unscaled, ok := new(big.Int).SetString(string(whole)+string(fraction), 10)
	return decimal{unscaled, len(fraction)}, ok
}

var ten = big.NewInt(10)

// rescale gives d the scale, rounding half up.
func (d decimal) rescale(scale int) decimal {
	if scale >= d.scale {
		factor := new(big.Int).Exp(ten, big.NewInt(int64(scale-d.scale)), nil)
		return decimal{factor.Mul(factor, d.unscaled), scale}
	}
	divisor := new(big.Int).Exp(ten, big.NewInt(int64(d.scale-scale)), nil)
	quotient, rest := new(big.Int).QuoRem(d.unscaled, divisor, new(big.Int))
	if rest.Abs(rest).Lsh(rest, 1).Cmp(divisor) >= 0 {
		quotient.Add(quotient, big.NewInt(int64(d.unscaled.Sign())))
	}
	return decimal{quotient, scale}
}

// strip removes zeros at the end of the fraction.
func (d decimal) strip() decimal {
	if d.unscaled.Sign() == 0 {
		return decimal{d.unscaled, 0}
	}
	for d.scale > 0 {
		quotient, rest := new(big.Int).QuoRem(d.unscaled, ten, new(big.Int))
		if rest.Sign() != 0 {
			break
		}
		d = decimal{quotient, d.scale - 1}
	}
	return d
}

// append writes d as BigDecimal.toString does: with an exponent for a negative scale
// and below 10^-6.
func (d decimal) append(dst []byte) []byte {
	digits := new(big.Int).Abs(d.unscaled).String()
	if d.unscaled.Sign() < 0 {
		dst = append(dst, '-')
	}
	adjusted := len(digits) - 1 - d.scale
	switch {
	case d.scale < 0, adjusted < -6:
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(append(dst, '.'), digits[1:]...)
		}
		if adjusted == 0 {
			return dst
		}
		dst = append(dst, 'E')
		if adjusted > 0 {
			dst = append(dst, '+')
		}
		return strconv.AppendInt(dst, int64(adjusted), 10)
	case d.scale == 0:
		return append(dst, digits...)
	}
	if missing := d.scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	point := len(digits) - d.scale
	return append(append(append(dst, digits[:point]...), '.'), digits[point:]...)
}

// twosComplement is n as BigInteger.toByteArray gives it: big endian, and as short
// as possible.
func twosComplement(n *big.Int) []byte {
	bits := n.BitLen()
	if n.Sign() < 0 {
		bits = new(big.Int).Not(n).BitLen()
	}
	out := make([]byte, bits/8+1)
	if n.Sign() < 0 {
		n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(out))))
	}
	return n.FillBytes(out)
}
