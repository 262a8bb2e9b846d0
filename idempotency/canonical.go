package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// FingerprintBytes is version b1: SHA-256 over the payload as is.
func FingerprintBytes(payload []byte) storage.Fingerprint {
	return fingerprint("b1:", payload)
}

// fingerprint is the version's fingerprint over the text.
func fingerprint(version string, text []byte) storage.Fingerprint {
	var space [64]byte // for both
	sum := sha256.Sum256(text)
	return storage.Fingerprint(base64.RawURLEncoding.AppendEncode(append(space[:0], version...), sum[:]))
}

// FingerprintJSON is version j1: SHA-256 over a canonical form of the JSON
// document, so that the order of members, white space, escapes and the way a
// number is written (1, 1.0, 10e-1) make no difference. The form is in the
// spirit of RFC 8785 but keeps numbers exact, where the RFC rounds them to
// binary64: different integers beyond 2^53 stay different.
//
// An ambiguous payload has no canonical form: invalid JSON, members named
// twice, unpaired surrogates, nesting beyond 1000 levels. Its fingerprint is
// that of the bytes, also of version j1, and so still differs from all others.
func FingerprintJSON(payload []byte) storage.Fingerprint {
	text, err := canonicalJSON(payload)
	if err != nil {
		text = append([]byte("bytes "), payload...) // no canonical form begins so
	}
	return fingerprint("j1:", text)
}

// errNotCanonical: the payload has no canonical form.
var errNotCanonical = errors.New("no canonical form")

// maxJSONDepth bounds the recursion.
const maxJSONDepth = 1000

// canonicalJSON returns the canonical form: members sorted by name, strings as
// strconv quotes them, numbers as appendNumber writes them.
func canonicalJSON(payload []byte) ([]byte, error) {
	if !utf8.Valid(payload) || !json.Valid(payload) {
		return nil, errNotCanonical
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	return appendValue(nil, decoder, 0)
}

func appendValue(to []byte, d *json.Decoder, depth int) ([]byte, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		if depth == maxJSONDepth {
			return nil, errNotCanonical
		}
		if token == '{' {
			return appendObject(to, d, depth+1)
		}
		return appendArray(to, d, depth+1)
	case string:
		return appendString(to, token)
	case json.Number:
		return appendNumber(to, token.String())
	case bool:
		return strconv.AppendBool(to, token), nil
	default:
		return append(to, "null"...), nil
	}
}

func appendArray(to []byte, d *json.Decoder, depth int) (_ []byte, err error) {
	to = append(to, '[')
	for first := true; d.More(); first = false {
		if !first {
			to = append(to, ',')
		}
		if to, err = appendValue(to, d, depth); err != nil {
			return nil, err
		}
	}
	_, err = d.Token()
	return append(to, ']'), err
}

type member struct {
	name  string
	value []byte
}

func appendObject(to []byte, d *json.Decoder, depth int) (_ []byte, err error) {
	var members []member
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // ensured by json.Valid
		value, err := appendValue(nil, d, depth)
		if err != nil {
			return nil, err
		}
		members = append(members, member{name: name, value: value})
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	to = append(to, '{')
	for i, m := range members {
		if i > 0 {
			if m.name == members[i-1].name {
				return nil, errNotCanonical
			}
			to = append(to, ',')
		}
		if to, err = appendString(to, m.name); err != nil {
			return nil, err
		}
		to = append(append(to, ':'), m.value...)
	}
	return append(to, '}'), nil
}

// appendString refuses the decoder's substitute for an unpaired surrogate.
func appendString(to []byte, s string) ([]byte, error) {
	if strings.ContainsRune(s, utf8.RuneError) {
		return nil, errNotCanonical
	}
	return strconv.AppendQuote(to, s), nil
}

// appendNumber writes the significant digits and the power of ten: 12e-1 for
// 1.20. All zeros are 0.
func appendNumber(to []byte, n string) ([]byte, error) {
	n, negative := strings.CutPrefix(n, "-")
	mantissa, power, found := strings.Cut(strings.ToLower(n), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return append(to, '0'), nil
	}
	exponent := len(digits) - len(significant) - len(fraction)
	if found {
		e, err := strconv.ParseInt(power, 10, 32)
		if err != nil { // nobody means such a number
			return nil, errNotCanonical
		}
		exponent += int(e)
	}
	if negative {
		to = append(to, '-')
	}
	to = append(append(to, significant...), 'e')
	return strconv.AppendInt(to, int64(exponent), 10), nil
}
