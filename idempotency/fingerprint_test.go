package idempotency_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

func TestFingerprintsOfOneDocument(t *testing.T) {
	for _, same := range [][]string{
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, " {\n\"a\" : 1 ,\t\"b\":2 }\n", `{"\u0061":1.0,"b":20e-1}`},
		{`[1,1.0,1e0,10e-1,0.1e1,1E+0,100e-2]`, `[1,1,1,1,1,1,1]`},
		{`[0,-0,0.00,0e9,-0.0e-7]`, `[0,0,0,0,0]`},
		{`[1e400,9007199254740993]`, `[1E+400, 9007199254740993.0]`},
		{`"\u00e9\n\/"`, `"é\u000a/"`},
		{`{"a":{"x":[],"y":{}},"b":null}`, `{"b":null,"a":{"y":{},"x":[]}}`},
		{`"\ud83e\udd86"`, `"🦆"`},
	} {
		want := idempotency.FingerprintJSON([]byte(same[0]))
		for _, doc := range same[1:] {
			if got := idempotency.FingerprintJSON([]byte(doc)); got != want {
				t.Errorf("%s and %s differ", same[0], doc)
			}
		}
	}
}

func TestFingerprintsOfDifferentPayloads(t *testing.T) {
	seen := make(map[storage.Fingerprint]string)
	for _, doc := range []string{
		``, ` `, `null`, `"null"`, `0`, `"0"`, `false`, `{}`, `[]`, `[[]]`, `[{}]`, `""`, `[""]`, `[null]`, `-1`, `1`, `10`, `0.1`, `1e1000`,
		`9007199254740992`, `9007199254740993`, `0.1000000000000000055511151231257827`, `1e99999999999`, `1e99999999998`,
		`{"a":1}`, `{"a":1,"a":1}`, `{"a":1,"a":2}`, `{"a":1, "a":2}`, `{"a":2,"a":1}`, `{"a":"1"}`, `{"A":1}`, `{"a":[1]}`, `{"a":{"b":1}}`, `{"a":{},"b":1}`,
		`["a","b"]`, `["a,b"]`, `["b","a"]`, `"é"`, "\"e\u0301\"", `"\ud800"`, `"\ud801"`, `"\ufffd"`, "\"\xff\"", "\"\xfe\"",
		`{"a":1`, `{"a":1}}`, `{a:1}`, `[1,]`, `[1 2]`, `01`, `1 1`, "\xef\xbb\xbf1", strings.Repeat("[", 2000) + strings.Repeat("]", 2000),
		strings.Repeat("[", 2001) + strings.Repeat("]", 2001), `bytes 1`,
	} {
		f := idempotency.FingerprintJSON([]byte(doc))
		if other, ok := seen[f]; ok {
			t.Errorf("%q and %q have one fingerprint", doc, other)
		}
		seen[f] = doc
		if f.Version() != "j1" || !f.Conflicts("j1:other") {
			t.Errorf("%q: %s", doc, f)
		}
	}
}

func TestConflicts(t *testing.T) {
	for _, test := range []struct {
		a, b storage.Fingerprint
		want bool
	}{
		{"", "", false}, {"b1:x", "", false}, {"", "b1:x", false}, {"b1:x", "b1:x", false}, {"b1:x", "b1:y", true},
		{"b1:x", "j1:x", false}, {"b1:x", "j1:y", false}, {"x", "y", false}, {"b1:x", "b11:x", false},
	} {
		if got := test.a.Conflicts(test.b); got != test.want {
			t.Errorf("%q and %q: %t", test.a, test.b, got)
		}
	}
}

// FuzzFingerprintJSON compares two payloads by their meaning, decoded
// independently, and writes the first anew in another order.
func FuzzFingerprintJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.50,-3e2],"b":{"c":null,"d":"é"}}`), []byte(`{"b":{"d":"\u00e9","c":null},"a":[1.0,25e-1,-300]}`), uint64(1))
	f.Add([]byte(`9007199254740993`), []byte(`9007199254740992`), uint64(2))
	f.Add([]byte(`{"a":1,"a":2}`), []byte(`{"a":2}`), uint64(3))
	f.Add([]byte(`"\ud800"`), []byte(`"\ufffd"`), uint64(4))
	f.Fuzz(func(t *testing.T, a, b []byte, seed uint64) {
		x, okX := meaning(a)
		y, okY := meaning(b)
		if !okX || !okY {
			t.Skip("a number too large for the comparison")
		}
		same := bytes.Equal(a, b) || x != nil && y != nil && reflect.DeepEqual(x, y)
		if got := idempotency.FingerprintJSON(a) == idempotency.FingerprintJSON(b); got != same {
			t.Errorf("%q and %q: same is %t, same fingerprint %t", a, b, same, got)
		}
		if x == nil {
			return
		}
		again := rewrite(nil, x, rand.New(rand.NewPCG(seed, 0)))
		if idempotency.FingerprintJSON(a) != idempotency.FingerprintJSON(again) {
			t.Errorf("%q differs from %q", a, again)
		}
	})
}

// value is a decoded document: nil without a single meaning.
type value any

// number is a comparable form of a number: a fraction.
type number string

// meaning returns the decoded document. Duplicate names are found by encoding
// the document again and counting the names.
func meaning(doc []byte) (v value, ok bool) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var decoded any
	if !json.Valid(doc) || d.Decode(&decoded) != nil || bytes.Contains(doc, []byte("\\u")) && strings.Contains(fmt.Sprintf("%q", decoded), "\ufffd") ||
		strings.Contains(fmt.Sprintf("%v", decoded), "\ufffd") || twice(doc) {
		return nil, true
	}
	ok = true
	v = convert(decoded, &ok)
	return v, ok
}

func convert(v any, ok *bool) value {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return []string{v}
	case json.Number:
		if _, power, found := strings.Cut(strings.ToLower(v.String()), "e"); found && len(power) > 3 {
			*ok = false
			return nil
		}
		r, _ := new(big.Rat).SetString(v.String())
		return number(r.String())
	case []any:
		list := make([]value, 0, len(v))
		for _, e := range v {
			list = append(list, convert(e, ok))
		}
		return list
	case map[string]any:
		members := make(map[string]value, len(v))
		for name, e := range v {
			members[name] = convert(e, ok)
		}
		return members
	default:
		return v
	}
}

// twice tells whether an object names a member twice: the decoder then has fewer
// names than the text.
func twice(doc []byte) bool {
	var raw json.RawMessage
	if json.Unmarshal(doc, &raw) != nil {
		return false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) == nil && members != nil {
		d := json.NewDecoder(bytes.NewReader(raw))
		_, _ = d.Token()
		names := 0
		for d.More() {
			_, _ = d.Token()
			var value json.RawMessage
			if d.Decode(&value) != nil || twice(value) {
				return true
			}
			names++
		}
		return names != len(members)
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		return slices.ContainsFunc(list, func(r json.RawMessage) bool { return twice(r) })
	}
	return false
}

// rewrite writes the document with the members in another order, other white
// space and other numerals.
func rewrite(to []byte, v value, random *rand.Rand) []byte {
	space := func() { to = append(to, []string{"", " ", "\n\t"}[random.IntN(3)]...) }
	space()
	switch v := v.(type) {
	case []string:
		quoted, _ := json.Marshal(v[0])
		to = append(to, quoted...)
	case string:
		to = append(to, v...)
	case number:
		to = append(to, numeral(string(v), random)...)
	case bool:
		to = fmt.Append(to, v)
	case []value:
		to = append(to, '[')
		for i, e := range v {
			if i > 0 {
				to = append(to, ',')
			}
			to = rewrite(to, e, random)
		}
		to = append(to, ']')
	case map[string]value:
		names := slices.Sorted(maps.Keys(v))
		random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		to = append(to, '{')
		for i, name := range names {
			if i > 0 {
				to = append(to, ',')
			}
			quoted, _ := json.Marshal(name)
			to = append(append(to, quoted...), ':')
			to = rewrite(to, v[name], random)
		}
		to = append(to, '}')
	}
	space()
	return to
}

// numeral writes a decimal fraction with a random exponent.
func numeral(fraction string, random *rand.Rand) string {
	r, _ := new(big.Rat).SetString(fraction)
	shift := random.IntN(20) - 10
	places, exact := r.FloatPrec()
	if !exact {
		return "unreachable"
	}
	power := new(big.Rat).SetFrac(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(shift, -shift))), nil), big.NewInt(1))
	if shift > 0 {
		return fmt.Sprintf("%se-%d", new(big.Rat).Mul(r, power).FloatString(places), shift)
	}
	return fmt.Sprintf("%sE+%d", new(big.Rat).Quo(r, power).FloatString(places-shift), -shift)
}

func BenchmarkFingerprint(b *testing.B) {
	doc := []byte(`{"order_id":"018f3c1e-7b5a-7c3e-9d2f-1a2b3c4d5e6f","amount":129.90,"currency":"EUR","lines":[{"sku":"A-1","n":2},{"sku":"B-7","n":1}]}`)
	for name, f := range map[string]func([]byte) storage.Fingerprint{"b1": idempotency.FingerprintBytes, "j1": idempotency.FingerprintJSON} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				f(doc)
			}
		})
	}
}
