package outbox

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf16"

	"github.com/cdc-outbox/cdc-outbox/internal/base/validjson"
)

// Limits of jsonb: the strings are PostgreSQL's text, the numbers are of the
// type numeric (PostgreSQL documentation, "JSON Types" and "Numeric Types": up
// to 131072 digits before the decimal point, 16383 after it).
const (
	maxIntegerDigits  = 131072
	maxFractionDigits = 16383
)

var (
	errZeroEscape = errors.New(`has the escape \u0000, which jsonb cannot hold`)
	errSurrogate  = errors.New("has an escaped half of a surrogate pair, which jsonb cannot hold")
	errNumber     = errors.New("has a number beyond those of jsonb")
)

// jsonbSize returns the greatest length of jsonb's text for a valid document,
// or the reason of a refusal. jsonb writes numbers without exponents, and a
// space after each comma and colon. Strings may become shorter, which is left
// aside.
func jsonbSize(document []byte) (size int, err error) {
	for r := validjson.NewReader(document); ; {
		length := 1
		switch c := r.Peek(); {
		case c == 0:
			return size, nil
		case c == '"':
			text := r.Text()
			length, err = len(text), checkEscapes(text)
		case c == '-' || '0' <= c && c <= '9':
			length, err = numberSize(r.Bare())
		case c == 't', c == 'f', c == 'n':
			length = len(r.Bare())
		case c == ',' || c == ':':
			length = len(", ")
			r.Skip()
		default: // a bracket
			r.Skip()
		}
		if err != nil {
			return 0, err
		}
		size += length
	}
}

func checkEscapes(text []byte) error {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return nil
		}
		if text = text[i:]; text[1] != 'u' {
			text = text[2:]
			continue
		}
		first := escape(text)
		text = text[escapeLength:]
		switch {
		case first == 0:
			return errZeroEscape
		case !utf16.IsSurrogate(first):
			continue
		case !bytes.HasPrefix(text, []byte(`\u`)), utf16.DecodeRune(first, escape(text)) == '\uFFFD':
			return errSurrogate
		}
		text = text[escapeLength:]
	}
}

// escapeLength is the length of \u0000.
const escapeLength = 6

func escape(text []byte) rune {
	n, _ := strconv.ParseUint(string(text[2:escapeLength]), 16, 16) // the JSON is valid: four hexadecimal digits
	return rune(n)
}

// numberSize returns the length of a number in jsonb's form.
func numberSize(number []byte) (int, error) {
	digits := bytes.TrimPrefix(number, []byte("-"))
	sign := len(number) - len(digits)
	exponent := 0
	if e := bytes.IndexAny(digits, "eE"); e >= 0 {
		var err error
		if exponent, err = strconv.Atoi(string(digits[e+1:])); err != nil {
			return 0, errNumber
		}
		digits = digits[:e]
	}
	integer, fraction, _ := bytes.Cut(digits, []byte("."))
	// In this order, an exponent near the limits of int does not overflow.
	if exponent > maxIntegerDigits-len(integer) || exponent < len(fraction)-maxFractionDigits {
		return 0, errNumber
	}
	size := sign + max(len(integer)+exponent, 1)
	if decimals := len(fraction) - exponent; decimals > 0 {
		size += len(".") + decimals
	}
	return size, nil
}
