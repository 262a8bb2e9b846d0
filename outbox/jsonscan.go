package outbox

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf16"
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

// jsonScanner walks valid JSON and finds what jsonb would refuse.
type jsonScanner struct{ rest []byte }

func (s *jsonScanner) run() error {
	for len(s.rest) > 0 {
		var err error
		switch c := s.rest[0]; {
		case c == '"':
			err = s.text()
		case c == '-' || '0' <= c && c <= '9':
			err = s.number()
		default: // a bracket, space, comma, colon, a letter of true, false or null
			s.rest = s.rest[1:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// text passes over a string.
func (s *jsonScanner) text() error {
	s.rest = s.rest[1:]
	for {
		i := bytes.IndexAny(s.rest, `"\`)
		if s.rest[i] == '"' {
			s.rest = s.rest[i+1:]
			return nil
		}
		s.rest = s.rest[i:]
		if s.rest[1] != 'u' {
			s.rest = s.rest[2:]
			continue
		}
		if err := s.unicode(); err != nil {
			return err
		}
	}
}

// escapeLength is the length of \u0000.
const escapeLength = 6

// unicode passes over an escape, and over the second of a pair.
func (s *jsonScanner) unicode() error {
	first := s.escape()
	switch {
	case first == 0:
		return errZeroEscape
	case !utf16.IsSurrogate(first):
		return nil
	case !bytes.HasPrefix(s.rest, []byte(`\u`)):
		return errSurrogate
	case utf16.DecodeRune(first, s.escape()) == '\uFFFD':
		return errSurrogate
	}
	return nil
}

func (s *jsonScanner) escape() rune {
	n, _ := strconv.ParseUint(string(s.rest[2:escapeLength]), 16, 16) // JSON is valid: it is four hexadecimal digits
	s.rest = s.rest[escapeLength:]
	return rune(n)
}

// number passes over a number.
func (s *jsonScanner) number() error {
	after := bytes.TrimLeft(s.rest, "+-.eE0123456789")
	number := bytes.TrimPrefix(s.rest[:len(s.rest)-len(after)], []byte("-"))
	s.rest = after
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
