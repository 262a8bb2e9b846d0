package registry_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
)

// shop is a Protobuf schema with fields of all kinds.
const shop = `syntax = "proto3";
package shop;
import "google/protobuf/any.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/money.proto";
import "confluent/meta.proto";
import "confluent/types/decimal.proto";
message Order {
  option (confluent.message_meta).doc = "an order";
  message Line { string sku = 1; int32 count = 2; message Note { string text = 1; } }
  int64 id = 1;
  double ratio = 2;
  google.protobuf.Timestamp at = 3;
  google.protobuf.Struct anything = 4;
  google.protobuf.Any detail = 5;
  google.type.Money price = 6;
  oneof way { string address = 7; int32 shelf = 8; }
  bytes data = 9;
  map<string, int32> tags = 10;
  State state = 11;
  google.protobuf.StringValue comment = 12;
  Order child = 13;
  repeated Line lines = 14;
  string a_note = 15;
  confluent.type.Decimal total = 16;
}
enum State { NEW = 0; PAID = 1; }
message Placed { int64 id = 1; }`

func TestProtobuf(t *testing.T) {
	for _, c := range []struct{ name, message, document, want string }{
		{"the first message", "", `{"id":1}`, "00" + "0801"},
		{"the first message by name", "shop.Order", `{"id":1}`, "00" + "0801"},
		{"the second message", "shop.Placed", `{"id":1}`, "0202" + "0801"},
		{"a message within", "shop.Order.Line", `{"count":1}`, "040000" + "1001"},
		{"a message within a message within", "shop.Order.Line.Note", `{"text":"a"}`, "06000000" + "0a0161"},
		{"nothing", "", `{}`, "00"},
		{"default values are left out", "", `{"id":0,"state":"NEW","lines":[]}`, "00"},
		{"null is no value", "", `{"id":null,"comment":null}`, "00"},
		{"fields in the order of numbers", "", `{"state":"PAID","id":2}`, "00" + "0802" + "5801"},
		{"long", "", `{"id":9223372036854775807}`, "0008ffffffffffffffff7f"},
		{"long in a text", "", `{"id":"-1"}`, "0008ffffffffffffffffff01"},
		{"whole number with a point or an exponent", "", `{"id":1.2e1}`, "00080c"},
		{"NaN", "", `{"ratio":"NaN"}`, "0011010000000000f87f"},
		{"timestamp", "", `{"at":"1970-01-01T01:00:01.5+01:00"}`, "001a08" + "0801" + "1080cab5ee01"},
		{"struct", "", `{"anything":{"a":[null,true]}}`, "00" + "2211" + "0a0f" + "0a0161" + "120a" + "3208" + "0a020800" + "0a022001"},
		{"any", "", `{"detail":{"@type":"type.googleapis.com/shop.Placed","id":3}}`, "002a25" + "0a1f" + hex.EncodeToString([]byte("type.googleapis.com/shop.Placed")) + "1202" + "0803"},
		{"Google's money", "", `{"price":{"currencyCode":"EUR","units":"12"}}`, "0032070a03455552100c"},
		{"Confluent's decimal", "", `{"total":{"value":"AQ==","scale":2}}`, "0082010" + "50a01011802"},
		{"one of several", "", `{"shelf":0}`, "004000"},
		{"base64", "", `{"data":"AP8="}`, "004a0200ff"},
		{"base64 for addresses, without padding", "", `{"data":"AP-_"}`, "004a0300ffbf"},
		{"map, sorted", "", `{"tags":{"b":1,"a":2}}`, "0052050a0161100252050a01621001"},
		{"number of an enum, also unknown", "", `{"state":7}`, "005807"},
		{"wrapped text", "", `{"comment":"q"}`, "0062030a0171"},
		{"names of fields and in JSON", "", `{"a_note":"x"}`, "007a0178"},
		{"names in JSON", "", `{"aNote":"x"}`, "007a0178"},
		{"as deep as others read", "", deep(`{"child":`, 99, `{}`), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := registry.Codec{Format: registry.FormatProtobuf, Schema: shop, Message: c.message}.Append("!", c.document, false)
			if err != nil || !strings.HasPrefix(hex.EncodeToString([]byte(got)), "21"+c.want) || c.want != "" && len(got) != 1+len(c.want)/2 {
				t.Errorf("got %x, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestProtobufRefuses(t *testing.T) {
	for _, c := range []struct{ name, document, want string }{
		{"no JSON", `{`, "is not valid JSON"},
		{"invalid UTF-8", "{\"aNote\":\"\xff\"}", "is not valid UTF-8"},
		{"another type at the top", `[]`, "syntax error (line 1:1): unexpected token ["},
		{"unknown field", `{"idd":1}`, `(line 1:2): unknown field "idd"`},
		{"field twice", `{"id":1,"id":2}`, `(line 1:9): duplicate field "id"`},
		{"name twice in a map", `{"tags":{"a":1,"a":2}}`, `(line 1:16): duplicate map key "a"`},
		{"two of several", `{"address":"a","shelf":1}`, `(line 1:16): error parsing "shelf", oneof shop.Order.way is already set`},
		{"fraction for a long", `{"id":1.5}`, "(line 1:7): invalid value for int64 field id: 1.5"},
		{"too large for a long", `{"id":9223372036854775808}`, "(line 1:7): invalid value for int64 field id: 9223372036854775808"},
		{"huge exponent", `{"id":1e999999999}`, "(line 1:7): invalid value for int64 field id: 1e999999999"},
		{"number for a text", `{"aNote":5}`, "(line 1:10): invalid value for string field aNote: 5"},
		{"no base64", `{"data":"é"}`, `(line 1:9): invalid value for bytes field data: "é"`},
		{"unknown symbol", `{"state":"OLD"}`, `(line 1:10): invalid value for enum field state: "OLD"`},
		{"time without an offset", `{"at":"2024-05-06 07:08:09"}`, `(line 1:7): invalid google.protobuf.Timestamp value "2024-05-06 07:08:09"`},
		{"any of an unknown type", `{"detail":{"@type":"x/y.Z"}}`, `(line 1:20): unable to resolve "x/y.Z": "not found"`},
		{"null in a list", `{"lines":[null]}`, "(line 1:11): unexpected token null"},
		{"too deep", deep(`{"child":`, 100, `{}`), "exceeded max recursion depth"},
		{"too deep in a struct", `{"anything":` + deep(`{"a":`, 34, `1`) + `}`, "messages are nested too deeply for readers in other languages"},
		{"a long value", `{"state":"` + strings.Repeat("x", 1000) + `"}`, "(line 1:10): invalid value for enum field state: \"" + strings.Repeat("x", 250) + "…"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := registry.Codec{Format: registry.FormatProtobuf, Schema: shop}.Append("!", c.document, false)
			if err == nil || got != "!" || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("got %q, %v, want %s", got, err, c.want)
			}
		})
	}
}

func deep(open string, n int, inmost string) string {
	return strings.Repeat(open, n) + inmost + strings.Repeat("}", n)
}

func TestProtobufLeavesOutUnknownFields(t *testing.T) {
	got, err := registry.Codec{Format: registry.FormatProtobuf, Schema: shop, Ignore: true}.Append("", `{"x":{"y":[1]},"id":1}`, false)
	if err != nil || got != "\x00\x08\x01" {
		t.Errorf("got %x, %v", got, err)
	}
}

func TestProtobufSchemas(t *testing.T) {
	line := `syntax="proto3"; package shop; import "sku.proto"; message Line { Sku sku = 1; }`
	order := `syntax="proto3"; package shop; import "shop/line.proto"; message Order { Line line = 1; }`
	for name, c := range map[string]struct {
		codec          registry.Codec
		document, want string
	}{
		"imports of imports": {
			registry.Codec{Schema: order, Referred: map[string]string{"shop/line.proto": line, "sku.proto": `syntax="proto3"; package shop; message Sku { string id = 1; }`}},
			`{"line":{"sku":{"id":"a"}}}`, "00" + "0a05" + "0a03" + "0a0161",
		},
		"a descriptor, as Python registers": {
			registry.Codec{Schema: "CgdvLnByb3RvEgRzaG9wIhMKBU9yZGVyEgoKAmlkGAEgASgDYgZwcm90bzM="},
			`{"id":1}`, "00" + "0801",
		},
		"proto2 with an extension and a group": {
			registry.Codec{Schema: `message A { optional int32 a = 1; extensions 100 to 200; optional group G = 2 { optional int32 b = 1; } } extend A { optional int32 x = 100; }`},
			`{"a":1,"[x]":2,"g":{"b":3}}`, "00" + "a00602" + "0801" + "13080314",
		},
		"an edition":           {registry.Codec{Schema: `edition = "2023"; message A { int32 a = 1; }`}, `{"a":0}`, "00" + "0800"},
		"a closed enumeration": {registry.Codec{Schema: `message A { optional E e = 1; } enum E { X = 1; }`}, `{"e":1}`, "000801"},
	} {
		c.codec.Format = registry.FormatProtobuf
		if got, err := c.codec.Append("", c.document, false); err != nil || hex.EncodeToString([]byte(got)) != c.want {
			t.Errorf("%s: %x, %v, want %s", name, got, err, c.want)
		}
	}
	for text, want := range map[string]string{
		``:                   "has no message",
		`x`:                  "(schema):1:1: syntax error: unexpected identifier",
		`syntax = "proto3";`: "has no message",
		`syntax="proto3"; message A { B b = 1; }`:          "(schema):1:30: field A.b: unknown type B",
		`syntax="proto3"; import "x.proto"; message A {}`:  `(schema):1:25: could not resolve path "x.proto": no reference of the schema has this name`,
		`syntax="proto3"; import "(schema)"; message A {}`: `(schema):1:25: cycle found in imports: "(schema)" -> "(schema)"`,
		"AAAA": "cannot parse invalid wire-format data",
		shop:   `has no message "shop.Missing", but shop.Order, shop.Order.Line, shop.Order.Line.Note, shop.Placed`,
	} {
		c := registry.Codec{Format: registry.FormatProtobuf, Schema: text}
		if text == shop {
			c.Message = "shop.Missing"
		}
		if _, err := c.Append("", `{}`, false); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%.80s: %v, want %s", text, err, want)
		}
	}
	required := registry.Codec{Format: registry.FormatProtobuf, Schema: `message A { required int32 a = 1; }`}
	if _, err := required.Append("", `{}`, false); err == nil || err.Error() != "required field A.a not set" {
		t.Errorf("a required field is missing: %v", err)
	}
}

const orderSchema = `{"$id":"http://shop/order.json","type":"object","required":["id"],"additionalProperties":false,"properties":{
	"id":{"type":"integer","minimum":0},
	"at":{"type":"string","format":"date-time"},
	"lines":{"type":"array","uniqueItems":true,"items":{"$ref":"line.json#/definitions/line"}}}}`

func TestJSONSchema(t *testing.T) {
	order := registry.Codec{Format: registry.FormatJSONSchema, Schema: orderSchema, Referred: map[string]string{
		"line.json": `{"definitions":{"line":{"type":"object","properties":{"a/b~c":{"type":"number","multipleOf":0.01}}}}}`,
	}}
	for document, want := range map[string]string{
		"{ \"id\" : 1.0, \"at\": \"2024-05-06T07:08:09Z\"\n}": "",
		`{"id":123456789012345678901234567890}`:               "",
		`{"id":1,"lines":[{"a/b~c":1.25},{}]}`:                "",
		`{`:                                                   "is not valid JSON",
		"{\"id\":1,\"at\":\"\xff\"}":                          "is not valid UTF-8",
		`{}`:                                                  "the document: missing property 'id'",
		`[]`:                                                  "the document: got array, want object",
		`{"id":-1}`:                                           "/id: minimum: got -1, want 0",
		`{"id":1.5}`:                                          "/id: got number, want integer",
		`{"id":1,"x":2}`:                                      "the document: additional properties 'x' not allowed",
		`{"id":1,"lines":[{},{"a/b~c":1.005}]}`:               "/lines/1/a~1b~0c: multipleOf: got 1.005, want 0.01",
		`{"id":1,"lines":[{},{}]}`:                            "/lines: items at 0 and 1 are equal",
		`{"id":1,"at":"yesterday"}`:                           "/at: 'yesterday' is not valid date-time: less than 20 characters long",
		`{"id":-1,"at":1,"lines":1}`:                          "/at: got number, want string",
		`{"id":1e10001}`:                                      "1e10001 is out of range",
		`{"id":0e-10001}`:                                     "0e-10001 is out of range",
	} {
		got, err := order.Append("!", document, false)
		if want == "" && (err != nil || got != "!"+document) || want != "" && (err == nil || err.Error() != want || got != "!") {
			t.Errorf("%s: %q, %v, want %s", document, got, err, want)
		}
	}
}

// Without validation a document need only be JSON, and a key's text becomes a string.
func TestJSONSchemaUnchecked(t *testing.T) {
	order := registry.Codec{Format: registry.FormatJSONSchema, Schema: orderSchema, Unchecked: true, Referred: map[string]string{
		"line.json": `{"definitions":{"line":{}}}`,
	}}
	for document, want := range map[string]string{
		`{"id":-1}`:                  "",
		`[1e10001]`:                  "",
		`{"id":1}x`:                  "is not valid JSON",
		"{\"id\":1,\"at\":\"\xff\"}": "is not valid UTF-8",
	} {
		got, err := order.Append("!", document, false)
		if want == "" && (err != nil || got != "!"+document) || want != "" && (err == nil || err.Error() != want || got != "!") {
			t.Errorf("%s: %q, %v, want %s", document, got, err, want)
		}
	}
	text := registry.Codec{Format: registry.FormatJSONSchema, Schema: `{"type":"string"}`, Unchecked: true}
	if got, err := text.Append("", "42", true); err != nil || got != `"42"` {
		t.Errorf("a key: %q, %v", got, err)
	}
}

func TestJSONSchemaSchemas(t *testing.T) {
	of := func(schema string) registry.Codec {
		return registry.Codec{Format: registry.FormatJSONSchema, Schema: schema}
	}
	for schema, valid := range map[string]bool{
		`true`: true, `false`: false, `{"items":[{"type":"string"}]}`: false,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","prefixItems":[{"type":"string"}]}`:               false,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","contains":{"const":1},"unevaluatedItems":false}`: true,
		`{"$schema":"http://json-schema.org/draft-04/schema#","maxItems":1}`:                                         true,
		`{"maximum":1e1000}`: true,
	} {
		if _, err := of(schema).Append("", `[1]`, false); (err == nil) != valid {
			t.Errorf("%s: %v", schema, err)
		}
	}
	for schema, want := range map[string]string{
		``:                                 "is not valid JSON",
		`[]`:                               "the document: got array, want boolean or object",
		`{"type":"x"}`:                     "/type: value must be one of 'array', 'boolean', 'integer', 'null', 'number', 'object', 'string'",
		`{"pattern":"(?=a)"}`:              "/pattern: '(?=a)' is not valid regex: error parsing regexp: invalid or unsupported Perl syntax: `(?=`",
		`{"$ref":"file:///etc/passwd"}`:    `failing loading "file:///etc/passwd": no reference of the schema has this name`,
		`{"$ref":"http://127.0.0.1:1/x"}`:  `failing loading "http://127.0.0.1:1/x": no reference of the schema has this name`,
		`{"$schema":"http://other/draft"}`: `failing loading "http://other/draft": no reference of the schema has this name`,
	} {
		if _, err := of(schema).Append("", `[1]`, false); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", schema, err, want)
		}
	}
}

func TestTextsOfKeys(t *testing.T) {
	for _, c := range []struct{ format, schema, message, text, want string }{
		{registry.FormatJSONSchema, `{"type":"string"}`, "", "42", `"42"`},
		{registry.FormatJSONSchema, `{"type":"string"}`, "", "a\"<\u2028>", `"a\"<` + `\u2028` + `>"`},
		{registry.FormatJSONSchema, `{"oneOf":[{"type":"null"},{"type":"string"}]}`, "", "42", `"42"`},
		{registry.FormatJSONSchema, `{"oneOf":[{"type":"null"},{"type":"integer"}]}`, "", "42", `42`},
		{registry.FormatJSONSchema, `{"type":["string","null"]}`, "", `"42"`, `"42"`},
		{registry.FormatJSONSchema, `{"type":"integer"}`, "", "42", `42`},
		{registry.FormatProtobuf, shop, "shop.Placed", `{"id":1}`, "\x02\x02\x08\x01"},
		{registry.FormatProtobuf, `syntax="proto3"; package google.protobuf; message StringValue { string value = 1; }`, "", "42", "\x00\x0a\x0242"},
	} {
		got, err := registry.Codec{Format: c.format, Schema: c.schema, Message: c.message}.Append("", c.text, true)
		if err != nil || got != c.want {
			t.Errorf("%s by %s: %q, %v, want %q", c.text, c.schema, got, err, c.want)
		}
	}
}

// No document leads to a panic, nor to something else at the second attempt.
func FuzzFormats(f *testing.F) {
	f.Add(`{"id":1,"lines":[{"a/b~c":1e3},{"sku":"a"}],"anything":{"a":[null]},"tags":{"a":1}}`)
	f.Add(`{"id":1e10001,"at":"2024-05-06T07:08:09Z","detail":{"@type":"x/shop.Placed","id":"1"}}`)
	var writers []func(dst, document []byte, text bool) ([]byte, error)
	for _, c := range []registry.Codec{
		{Format: registry.FormatProtobuf, Schema: shop},
		{Format: registry.FormatProtobuf, Schema: shop, Ignore: true},
		{Format: registry.FormatJSONSchema, Schema: strings.Replace(orderSchema, `{"$ref":"line.json#/definitions/line"}`, `{"uniqueItems":true}`, 1)},
		{Format: registry.FormatJSONSchema, Schema: `{"uniqueItems":true,"items":{"maximum":3,"multipleOf":0.5,"minLength":1,"uniqueItems":true},"enum":[1,{"a":2}]}`},
	} {
		writers = append(writers, must.Get(c.Parse())(f))
	}
	f.Fuzz(func(t *testing.T, document string) {
		for _, write := range writers {
			one, err := write(nil, []byte(document), false)
			two, again := write(nil, []byte(document), false)
			if !bytes.Equal(one, two) || (err == nil) != (again == nil) {
				t.Errorf("%x, %v, then %x, %v", one, err, two, again)
			}
		}
	})
}

func BenchmarkFormats(b *testing.B) {
	const document = `{"id":12345,"aNote":"a note of some length","lines":[{"sku":"abc","count":2},{"sku":"def","count":1}],"tags":{"a":1},"state":"PAID","at":"2024-05-06T07:08:09.123456Z"}`
	for name, c := range map[string]registry.Codec{
		"protobuf":    {Format: registry.FormatProtobuf, Schema: shop},
		"json_schema": {Format: registry.FormatJSONSchema, Schema: `{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"aNote":{"type":"string"},"lines":{"type":"array","items":{"type":"object","properties":{"sku":{"type":"string"},"count":{"type":"integer"}}}},"at":{"type":"string","format":"date-time"},"state":{"enum":["NEW","PAID"]}}}`},
	} {
		b.Run(name, func(b *testing.B) {
			write := must.Get(c.Parse())(b)
			var dst []byte
			b.ReportAllocs()
			b.SetBytes(int64(len(document)))
			for b.Loop() {
				dst = must.Get(write(dst[:0], []byte(document), false))(b)
			}
		})
	}
}
