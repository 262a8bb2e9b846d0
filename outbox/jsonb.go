package outbox

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf16"

	"github.com/cdc-outbox/cdc-outbox/internal/base/validjson"
)

// What jsonb cannot hold: its strings are PostgreSQL's text, its numbers are of
// the type numeric (PostgreSQL documentation, "JSON Types" and "Numeric Types":
// up to 131072 digits before the decimal point, 16383 after it).
const (
	maxIntegerDigits  = 131072
	maxFractionDigits = 16383
)

var (
	errZeroEscape = errors.New(`has the escape \u0000, which jsonb cannot hold`)
	errSurrogate  = errors.New("has an escaped half of a surrogate pair, which jsonb cannot hold")
	errNumber     = errors.New("has a number beyond those of jsonb")
)

// refusedByJSONB returns why jsonb would refuse a valid document.
func refusedByJSONB(document []byte) error {
	for r := validjson.NewReader(document); ; {
		var err error
		switch c := r.Peek(); {
		case c == 0:
			return nil
		case c == '"':
			err = checkEscapes(r.Text())
		case c == '-' || '0' <= c && c <= '9':
			err = checkNumber(r.Bare())
		case c == 't', c == 'f', c == 'n':
			r.Bare()
		default: // a bracket, comma or colon
			r.Skip()
		}
		if err != nil {
			return err
		}
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
	n, _ := strconv.ParseUint(string(text[2:escapeLength]), 16, 16) // JSON is valid: it is four hexadecimal digits
	return rune(n)
}

func checkNumber(number []byte) error {
	number = bytes.TrimPrefix(number, []byte("-"))
	exponent := 0
	if e := bytes.IndexAny(number, "eE"); e >= 0 {
		var err error
		if exponent, err = strconv.Atoi(string(number[e+1:])); err != nil {
			return errNumber
		}
		number = number[:e]
	}
	integer, fraction, _ := bytes.Cut(number, []byte("."))
	// Compared this way round, an exponent near the limits of int does not overflow.
	if exponent > maxIntegerDigits-len(integer) || exponent < len(fraction)-maxFractionDigits {
		return errNumber
	}
	return nil
}
