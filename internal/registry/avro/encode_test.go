package avro_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	reference "github.com/twmb/avro"
	"pgregory.net/rapid"

	"github.com/cdc-outbox/cdc-outbox/internal/registry/avro"
)

// order is a record with all kinds of fields.
const order = `{"type":"record","name":"Order","namespace":"shop","fields":[
	{"name":"id","type":"long"},
	{"name":"note","type":["null","string"],"default":null},
	{"name":"total","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2},"default":"\u0001\u0000"},
	{"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[
		{"name":"sku","type":"string"},{"name":"n","type":"int","default":1}]}},"default":[]},
	{"name":"tags","type":{"type":"map","values":"string"},"default":{}},
	{"name":"state","type":{"type":"enum","name":"State","symbols":["NEW","PAID"]},"default":"NEW"},
	{"name":"at","type":["null",{"type":"long","logicalType":"timestamp-micros"}],"default":null}]}`

// field is a schema of a record with a single field v.
func field(of string) string {
	return `{"type":"record","name":"R","namespace":"n","fields":[{"name":"v","type":` + of + `}]}`
}

func TestAppend(t *testing.T) {
	for _, c := range []struct{ name, schema, document, want string }{
		{"fields in the schema's order, with defaults", order, `{"lines":[{"n":2,"sku":"a"}],"id":-1}`, "01" + "00" + "04" + "0100" + "02" + "0261" + "04" + "00" + "00" + "00" + "00"},
		{"boolean", field(`"boolean"`), `{"v":true}`, "01"},
		{"int", field(`"int"`), `{"v":-2147483648}`, "ffffffff0f"},
		{"whole number with a point", field(`"int"`), `{"v":12.00}`, "18"},
		{"whole number with an exponent", field(`"long"`), `{"v":12E2}`, "e012"},
		{"long", field(`"long"`), `{"v":9223372036854775807}`, "feffffffffffffffff01"},
		{"float", field(`"float"`), `{"v":1.5}`, "0000c03f"},
		{"double", field(`"double"`), `{"v":-0.0}`, "0000000000000080"},
		{"NaN", field(`"double"`), `{"v":"NaN"}`, "010000000000f87f"},
		{"text with escapes", field(`"string"`), `{"v":"a\n\u00e9\ud83d\ude00\/"}`, "12610ac3a9f09f98802f"},
		{"base64", field(`"bytes"`), `{"v":"AP8="}`, "0400ff"},
		{"fixed", field(`{"type":"fixed","name":"F","size":2}`), `{"v":"AP8="}`, "00ff"},
		{"decimal of a number", field(`{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}`), `{"v":-12.3}`, "04fb32"},
		{"decimal of a text", field(`{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}`), `{"v":"1.28"}`, "040080"},
		{"decimal of a fixed", field(`{"type":"fixed","name":"F","size":4,"logicalType":"decimal","precision":4,"scale":2}`), `{"v":-1}`, "ffffff9c"},
		{"zero as a decimal", field(`{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}`), `{"v":0e9999}`, "0200"},
		{"date", field(`{"type":"int","logicalType":"date"}`), `{"v":"1969-12-31"}`, "01"},
		{"date as a number", field(`{"type":"int","logicalType":"date"}`), `{"v":3}`, "06"},
		{"time", field(`{"type":"int","logicalType":"time-millis"}`), `{"v":"00:00:01.002"}`, "d40f"},
		{"timestamp before 1970", field(`{"type":"long","logicalType":"timestamp-micros"}`), `{"v":"1969-12-31T23:59:59.999999Z"}`, "01"},
		{"timestamp with an offset", field(`{"type":"long","logicalType":"timestamp-millis"}`), `{"v":"1970-01-01T01:00:00.001+01:00"}`, "02"},
		{"local timestamp", field(`{"type":"long","logicalType":"local-timestamp-nanos"}`), `{"v":"1970-01-01T00:00:00.000000001"}`, "02"},
		{"UUID", field(`{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}`), `{"v":"00000000-0000-0000-0000-0000000000ff"}`, strings.Repeat("00", 15) + "ff"},
		{"unknown logical type", field(`{"type":"string","logicalType":"colour"}`), `{"v":"red"}`, "06726564"},
		{"null of a union", field(`["null","long"]`), `{"v":null}`, "00"},
		{"absent member of a union with null", field(`["string","null"]`), `{}`, "02"},
		{"long beside int", field(`["null","int","long"]`), `{"v":2147483648}`, "048080808010"},
		{"fraction beside long", field(`["long","double"]`), `{"v":0.5}`, "02000000000000e03f"},
		{"fraction for the double", field(`["float","double"]`), `{"v":0.1}`, "029a9999999999b93f"},
		{"text beside bytes", field(`["bytes","string"]`), `{"v":"AP8="}`, "02084150383d"},
		{"symbol beside bytes", field(`["bytes",{"type":"enum","name":"E","symbols":["A_B"]}]`), `{"v":"A_B"}`, "0200"},
		{"record by its fields", field(`["null",{"type":"record","name":"A","fields":[{"name":"a","type":"int"}]},{"type":"record","name":"B","fields":[{"name":"b","type":"int"}]}]`), `{"v":{"b":1}}`, "0402"},
		{"record by its name", field(`[{"type":"record","name":"A","fields":[{"name":"a","type":"int"}]},{"type":"record","name":"B","fields":[{"name":"b","type":"int"},{"name":"c","type":"int"}]}]`), `{"v":{"n.B":{"b":1,"c":2}}}`, "020204"},
		{"map beside a record", field(`[{"type":"record","name":"A","fields":[{"name":"a","type":"int"}]},{"type":"map","values":"int"}]`), `{"v":{"x":1}}`, "020202780200"},
		{"recursive type", `{"type":"record","name":"T","fields":[{"name":"next","type":["null","T"],"default":null}]}`, `{"next":{"next":{}}}`, "020200"},
		{"bytes at the top have no length", `"bytes"`, `"AP8="`, "00ff"},
		{"default of a union", `{"type":"record","name":"R","fields":[{"name":"a","type":["int","string"],"default":7},{"name":"b","type":["null","string"],"default":"x"}]}`, `{}`, "000e" + "020278"},
	} {
		t.Run(c.name, func(t *testing.T) {
			schema, err := avro.Parse(c.schema)
			if err != nil {
				t.Fatal(err)
			}
			got, err := schema.Append([]byte("!"), []byte(c.document), avro.Options{})
			if err != nil || hex.EncodeToString(got) != "21"+c.want {
				t.Errorf("got %x, %v, want %s", got[1:], err, c.want)
			}
		})
	}
}

func TestAppendRefuses(t *testing.T) {
	for _, c := range []struct{ name, schema, document, want string }{
		{"no JSON", order, `{`, "the document: is not valid JSON"},
		{"invalid UTF-8", order, "{\"id\":1,\"note\":\"\xff\"}", "the document: is not valid UTF-8"},
		{"another type at the top", order, `[]`, "the document: an array is no value of type shop.Order"},
		{"missing field", order, `{}`, "id: is missing, and has no default"},
		{"unknown field", order, `{"id":1,"idd":2}`, "idd: is no field of shop.Order"},
		{"field twice", order, `{"id":1,"id":2}`, "id: is there twice"},
		{"fraction for a long", order, `{"id":1.5}`, "id: 1.5 is no whole number of 64 bits"},
		{"too large for a long", order, `{"id":9223372036854775808}`, "id: 9223372036854775808 is no whole number of 64 bits"},
		{"huge exponent", order, `{"id":1e999999999}`, "id: 1e999999999 is out of range"},
		{"text for a long", order, `{"id":"1"}`, `id: "1" is no value of type long`},
		{"null without a branch", order, `{"id":null}`, "id: null is no value of type long"},
		{"deep within", order, `{"id":1,"lines":[{"sku":"a"},{"sku":"b","n":2147483648}]}`, "lines[1].n: 2147483648 is no whole number of 32 bits"},
		{"in a map", order, `{"id":1,"tags":{"k":1}}`, "tags.k: the number 1 is no value of type string"},
		{"map with a name twice", order, `{"id":1,"tags":{"k":"","\u006b":""}}`, `tags.\u006b: is there twice`},
		{"unknown symbol", order, `{"id":1,"state":"OLD"}`, `state: "OLD" is no symbol of shop.State`},
		{"too many digits", order, `{"id":1,"total":1.005}`, "total: 1.005 is no decimal of precision 9 and scale 2"},
		{"finer than the type", order, `{"id":1,"at":"2024-01-01T00:00:00.1234567Z"}`, `at: "2024-01-01T00:00:00.1234567Z" is finer than timestamp-micros`},
		{"finer than any type", field(`{"type":"long","logicalType":"timestamp-nanos"}`), `{"v":"2024-01-01T00:00:00.1234567891Z"}`, `v: "2024-01-01T00:00:00.1234567891Z" is no timestamp-nanos, like 2006-01-02T15:04:05Z`},
		{"beyond the range", field(`{"type":"long","logicalType":"timestamp-nanos"}`), `{"v":"2263-01-01T00:00:00Z"}`, `v: "2263-01-01T00:00:00Z" is out of the range of timestamp-nanos`},
		{"without an offset", order, `{"id":1,"at":"2024-01-01T00:00:00"}`, `at: "2024-01-01T00:00:00" is no timestamp-micros, like 2006-01-02T15:04:05Z`},
		{"whole number that a float would round", field(`"double"`), `{"v":9007199254740993}`, "v: a float of 64 bits cannot hold 9007199254740993"},
		{"half a surrogate pair", field(`"string"`), `{"v":"\ud800x"}`, `v: "\ud800x" has half of a surrogate pair, which is no character`},
		{"no base64", field(`"bytes"`), `{"v":"é"}`, `v: "é" is no base64, the form of bytes`},
		{"fixed of another size", field(`{"type":"fixed","name":"F","size":2}`), `{"v":"AA=="}`, "v: 1 bytes are not the 2 of n.F"},
		{"no branch", field(`["null","long"]`), `{"v":"x"}`, `v: "x" is no value of type long`},
		{"no branch of many", field(`["null","long","boolean"]`), `{"v":"x"}`, `v: "x" is no value of type union of null, long, boolean`},
		{"text for two branches", field(`["bytes",{"type":"enum","name":"E","symbols":["AP8="]}]`), `{"v":"AP8="}`, `v: "AP8=" fits several branches of the union: bytes and n.E`},
		{"object for two records", field(`[{"type":"record","name":"A","fields":[]},{"type":"record","name":"B","fields":[]}]`), `{"v":{}}`, `v: the object fits several branches of the union: n.A and n.B; write {"n.B": …}`},
		{"the only record's own error", field(`["null","long",{"type":"record","name":"A","fields":[{"name":"a","type":"int"}]}]`), `{"v":{"b":1}}`, "v.b: is no field of n.A"},
		{"too deep", `{"type":"record","name":"T","fields":[{"name":"n","type":["null","T"],"default":null}]}`, strings.Repeat(`{"n":`, 600) + "null" + strings.Repeat("}", 600), ": types are nested too deeply"},
	} {
		t.Run(c.name, func(t *testing.T) {
			schema, err := avro.Parse(c.schema)
			if err != nil {
				t.Fatal(err)
			}
			got, err := schema.Append([]byte("!"), []byte(c.document), avro.Options{})
			if err == nil || !strings.HasSuffix(err.Error(), c.want) || string(got) != "!" {
				t.Errorf("got %q, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	schema, err := avro.Parse(order)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := schema.Append(nil, []byte(`{"id":1}`), avro.Options{})
	got, err := schema.Append(nil, []byte(`{"x":{"y":[1]},"id":1}`), avro.Options{IgnoreUnknown: true})
	if err != nil || string(got) != string(want) {
		t.Errorf("got %x, %v, want %x", got, err, want)
	}
}

func TestKeysAreTexts(t *testing.T) {
	for schema, want := range map[string]string{`"string"`: "043432", `{"type":"enum","name":"E","symbols":["x","42"]}`: "02", `"long"`: "54", `["null","string"]`: "02043432", `["string","null"]`: "00043432", `["null","long"]`: "0254"} {
		s, err := avro.Parse(schema)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Append(nil, []byte("42"), avro.Options{Text: s.Textual()})
		if err != nil || hex.EncodeToString(got) != want {
			t.Errorf("%s: got %x, %v, want %s", schema, got, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	if s, err := avro.Parse(`{"type":"record","name":"A","fields":[{"name":"b","type":"shop.Line"}]}`, `{"type":"record","name":"shop.Line","fields":[]}`); err != nil || s.Name() != "A" {
		t.Errorf("a schema that refers to another: %v", err)
	}
	for text, want := range map[string]string{
		`x`:                             "is no Avro schema",
		``:                              "is no Avro schema",
		`{}`:                            "is no Avro schema",
		`"Missing"`:                     `type "Missing" is not known`,
		`[]`:                            "a union has no branch",
		`["null",["int"]]`:              "a union has a union as a branch",
		`{"type":"record","fields":[]}`: "a record, enum or fixed has no name",
		`{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}`:         `record R has the field "a" twice, or without a name`,
		`{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}`:                     `default of field a of R: "x" is no value of type int`,
		`{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"enum","name":"R","symbols":[]}}]}`: "field a of R: type R is defined twice",
		strings.Repeat(`{"type":"array","items":`, 1000) + `"int"` + strings.Repeat("}", 1000):                "types are nested too deeply",
	} {
		if _, err := avro.Parse(text); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%.80s: %v, want %s", text, err, want)
		}
	}
}

func TestErrorsAreKnown(t *testing.T) {
	s, err := avro.Parse(order)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(nil, []byte(`{`), avro.Options{}); !errors.Is(err, avro.ErrNotJSON) {
		t.Error(err)
	}
	if _, err := s.Append(nil, []byte("\"\xff\""), avro.Options{}); !errors.Is(err, avro.ErrNotUTF8) {
		t.Error(err)
	}
}

// generated makes schemas and documents for them, with a single branch beside null in
// unions: both writers choose alike.
type generated struct {
	t     *rapid.T
	named int
}

func (g *generated) typ(depth int) (schema string, document func() string) {
	kinds := 7
	if depth > 0 {
		kinds = 11
	}
	integer := func(low, high int64) func() string {
		return func() string { return fmt.Sprint(rapid.Int64Range(low, high).Draw(g.t, "n")) }
	}
	text := func() string {
		return fmt.Sprintf("%q", rapid.StringMatching(`[a-z ÄÖ€😀0-9]{0,12}`).Draw(g.t, "text"))
	}
	switch rapid.IntRange(0, kinds-1).Draw(g.t, "kind") {
	case 0:
		return `"int"`, integer(-1<<31, 1<<31-1)
	case 1:
		return `"long"`, integer(-1<<63, 1<<63-1)
	case 2:
		return `"double"`, func() string { return fmt.Sprint(rapid.Float64Range(-1e9, 1e9).Draw(g.t, "float")) }
	case 3:
		return `"boolean"`, func() string { return fmt.Sprint(rapid.Bool().Draw(g.t, "boolean")) }
	case 4, 5:
		return `"string"`, text
	case 6:
		g.named++
		return fmt.Sprintf(`{"type":"enum","name":"E%d","symbols":["A","B","C"]}`, g.named), func() string {
			return `"` + rapid.SampledFrom([]string{"A", "B", "C"}).Draw(g.t, "symbol") + `"`
		}
	case 7:
		items, item := g.typ(depth - 1)
		return `{"type":"array","items":` + items + `}`, func() string {
			var all []string
			for range rapid.IntRange(0, 3).Draw(g.t, "length") {
				all = append(all, item())
			}
			return "[" + strings.Join(all, ", ") + "]"
		}
	case 8:
		values, value := g.typ(depth - 1)
		return `{"type":"map","values":` + values + `}`, func() string {
			if rapid.Bool().Draw(g.t, "empty") { // the other writer has no order
				return "{}"
			}
			return `{"k":` + value() + `}`
		}
	case 9:
		of, value := g.typ(0)
		return `["null",` + of + `]`, func() string {
			if rapid.Bool().Draw(g.t, "null") {
				return "null"
			}
			return value()
		}
	}
	return g.record(depth)
}

func (g *generated) record(depth int) (schema string, document func() string) {
	g.named++
	name := fmt.Sprintf("R%d", g.named)
	var fields []string
	var values []func() string
	for i := range rapid.IntRange(1, 4).Draw(g.t, "fields") {
		of, value := g.typ(depth - 1)
		fields = append(fields, fmt.Sprintf(`{"name":"f%d","type":%s}`, i, of))
		values = append(values, value)
	}
	return `{"type":"record","name":"` + name + `","fields":[` + strings.Join(fields, ",") + `]}`, func() string {
		order := make([]int, len(values))
		for i := range order {
			order[i] = i
		}
		var members []string
		for _, i := range rapid.Permutation(order).Draw(g.t, "order") {
			members = append(members, fmt.Sprintf("\"f%d\" : %s", i, values[i]()))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
}

// Another writer makes the same bytes.
func TestBytesOfAnotherWriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := generated{t: t}
		text, document := g.record(3)
		ours, err := avro.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		theirs, err := reference.Parse(text)
		if err != nil {
			t.Fatalf("%s: the other writer: %v", text, err)
		}
		for range 3 {
			doc := document()
			got, err := ours.Append(nil, []byte(doc), avro.Options{})
			if err != nil {
				t.Fatalf("%s by %s: %v", doc, text, err)
			}
			var value any
			if err := theirs.DecodeJSON([]byte(doc), &value); err != nil {
				t.Fatalf("%s by %s: the other writer: %v", doc, text, err)
			}
			want, err := theirs.Encode(value)
			if err != nil || string(got) != string(want) {
				t.Fatalf("%s by %s: %x, want %x (%v)", doc, text, got, want, err)
			}
		}
	})
}

// No document and no schema leads to a panic.
func FuzzAppend(f *testing.F) {
	f.Add(order, `{"id":1,"lines":[{"sku":"a"}]}`)
	f.Add(field(`["null","int","double","bytes",{"type":"map","values":"long"}]`), `{"v":{"a":1e3}}`)
	f.Fuzz(func(_ *testing.T, schema, document string) {
		s, err := avro.Parse(schema)
		if err != nil {
			return
		}
		_, _ = s.Append(nil, []byte(document), avro.Options{})
		_, _ = s.Append(nil, []byte(document), avro.Options{Text: s.Textual(), IgnoreUnknown: true})
	})
}

func BenchmarkAppend(b *testing.B) {
	s, err := avro.Parse(order)
	if err != nil {
		b.Fatal(err)
	}
	document := []byte(`{"id":12345,"note":"a note of some length","total":1234.56,"lines":[{"sku":"abc","n":2},{"sku":"def","n":1}],"tags":{"a":"b"},"state":"PAID","at":"2024-05-06T07:08:09.123456Z"}`)
	var dst []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(document)))
	for b.Loop() {
		if dst, err = s.Append(dst[:0], document, avro.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
