package transform

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// shapedValue is the value of a row with the payload, under Debezium's expansion.
func shapedValue(t testing.TB, payload string, change func(*EventOptions)) (string, Warning) {
	t.Helper()
	ev := debeziumEvent()
	ev.PayloadFormat = FormatJSONExpanded
	if change != nil {
		change(&ev)
	}
	router := must.Get(New(ev, DefaultRoute()))(t)
	rel := &pg.Relation{Columns: []pg.Column{
		{Name: "id", Type: pgtype.TextOID}, {Name: "aggregatetype", Type: pgtype.TextOID},
		{Name: "aggregateid", Type: pgtype.TextOID}, {Name: "payload", Type: pgtype.TextOID},
	}}
	event, err := router.Route(&pg.Row{Relation: rel, Values: []pg.Value{textValue("i"), textValue("x"), textValue("k"), textValue(payload)}})
	if err != nil {
		t.Fatalf("%s: %v", payload, err)
	}
	return string(event.Record.Value), event.Warning
}

// The values are Debezium's (tests/debezium), unless they say otherwise.
func TestExpandsAsDebezium(t *testing.T) {
	for _, tt := range []struct{ payload, want string }{
		{`{"a" : 1.50, "b":1e2, "c":-0, "d":1E400, "e":0.1e-6 , "f":12}`, `{"a":1.5,"b":100.0,"c":0,"d":"Infinity","e":1.0E-7,"f":12}`},
		{`{"a":"\u00e9\ud83d\ude00😀\ud800\/\u001F"}`, `{"a":"é\uD83D\uDE00\uD83D\uDE00\uD800/\u001F"}`},
		{`{"\u0041":1,"b":2,"A":{"c":3}} trailing`, `{"A":{"c":3},"b":2}`},
		{`{"a":null,"b":[],"":null,"c":{}}`, `{"c":{}}`},
		{`{"a":[{"x":1},null,{"x":null}],"b":[{"x":1},{"x":1,"y":2}]}`, `"{\"a\":[{\"x\":1},null,{\"x\":null}],\"b\":[{\"x\":1},{\"x\":1,\"y\":2}]}"`}, // there the end
		{`{"a":[{"x":1},null,{"x":2}],"b":[{"x":1},{"x":1,"y":2}]}`, `{"a":[{"x":1},null,{"x":2}],"b":[{"x":1,"y":null},{"x":1,"y":2}]}`},
		{`{"a":[[{"x":1}],[{"y":2}]]}`, `{"a":[[{"x":1}],[{"x":null}]]}`},
		{`{"a":[{"x":{"y":1}},{"x":{"z":[{"u":1},{"v":2}]}}]}`, `{"a":[{"x":{"y":1,"z":null}},{"x":{"y":null,"z":[{"u":1,"v":null},{"u":null,"v":2}]}}]}`}, // there one of two
		{`[{"a":1}]`, `[{"a":1}]`}, // there the end
		{`[]`, `"[]"`},
		{`null`, `"null"`},
		{`{"":1}`, `"{\"\":1}"`},
		{`{"a":[1,"x"]}`, `"{\"a\":[1,\"x\"]}"`},
		{`{"a":[1,3000000000]}`, `"{\"a\":[1,3000000000]}"`},
		{`{"a":01}`, `"{\"a\":01}"`},
		{`{"a":1`, `"{\"a\":1"`},
		{"{\"a\":\"\t\"}", `"{\"a\":\"\t\"}"`},
		{`{"a":` + strings.Repeat("1", 1001) + `}`, `"{\"a\":` + strings.Repeat("1", 1001) + `}"`},
		{`{"a":` + strings.Repeat("[", 1000) + `1` + strings.Repeat("]", 1000) + `}`, `"{\"a\":` + strings.Repeat("[", 1000) + `1` + strings.Repeat("]", 1000) + `}"`},
	} {
		got, warning := shapedValue(t, tt.payload, nil)
		if got != tt.want {
			t.Errorf("%.200s became\n%.300s, want\n%.300s", tt.payload, got, tt.want)
		}
		if quoted := tt.want[0] == '"'; quoted != (warning == WarningNotExpanded) {
			t.Errorf("%.200s: warning %q", tt.payload, warning)
		}
	}
}

func TestSchemaOfExpandedJSON(t *testing.T) {
	got, _ := shapedValue(t, `{"a":[{"x":null},{"x":1,"y":true}],"b":[],"ä":{"c":[[2.5]]}}`, func(ev *EventOptions) {
		ev.Debezium.ValueSchemas, ev.NullBehavior, ev.EmptyArrayBehavior = true, NullOptionalBytes, EmptyArrayOptionalString
	})
	const want = `{"schema":{"type":"struct","fields":[` +
		`{"type":"array","items":{"type":"struct","fields":[{"type":"int32","optional":true,"field":"x"},{"type":"boolean","optional":true,"field":"y"}],"optional":false,"name":"payload.a"},"optional":true,"field":"a"},` +
		`{"type":"array","items":{"type":"string","optional":true},"optional":true,"field":"b"},` +
		`{"type":"struct","fields":[{"type":"array","items":{"type":"array","items":{"type":"double","optional":true},"optional":true},"optional":true,"field":"c"}],"optional":true,"name":"payload.ä","field":"ä"}` +
		`],"optional":true,"name":"payload"},"payload":{"a":[{"x":null,"y":null},{"x":1,"y":true}],"b":[],"ä":{"c":[[2.5]]}}}`
	if got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

// An object with many members is read in time proportional to their number.
func TestManyMembersAreFound(t *testing.T) {
	var text strings.Builder
	text.WriteString(`{"list":[{"a":1},{"z":1`)
	for i := range 50_000 {
		text.WriteString(`,"m` + string(rune('a'+i%26)) + strings.Repeat("x", i%7) + `":1,"`)
		text.WriteString(strings.Repeat("k", i%3) + string(rune(0x4E00+i%20_000)) + `":2`)
	}
	text.WriteString(`}]}`)
	if got, _ := shapedValue(t, text.String(), nil); !json.Valid([]byte(got)) || !strings.HasPrefix(got, `{"list":[{"a":1,"z":null,`) {
		t.Errorf("got %.100s", got)
	}
}

func FuzzExpandsToJSON(f *testing.F) {
	f.Add(`{"a":[{"x":1},{"y":[null,{"é":"\ud800"}]}],"a":2}`, true, false)
	f.Add(`[[{" ":{"y":-1.5e-7}}],[]]`, false, true)
	f.Fuzz(func(t *testing.T, payload string, keepNull, keepEmpty bool) {
		if !utf8.ValidString(payload) {
			return
		}
		for _, schemas := range []bool{false, true} {
			got, warning := shapedValue(t, payload, func(ev *EventOptions) {
				ev.Debezium.ValueSchemas = schemas
				if keepNull {
					ev.NullBehavior = NullOptionalBytes
				}
				if keepEmpty {
					ev.EmptyArrayBehavior = EmptyArrayOptionalString
				}
			})
			if !json.Valid([]byte(got)) {
				t.Errorf("%q became %q", payload, got)
			}
			if warning == "" && json.Valid([]byte(payload)) == false && !strings.ContainsAny(payload, "}]") {
				t.Errorf("%q was expanded: %q", payload, got)
			}
		}
	})
}
