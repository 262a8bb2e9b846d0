package transform

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// recording is testdata/debezium.json: what Debezium made of values, written by the
// tests in tests/debezium.
type recording struct {
	Modes  map[string]map[string]string `json:"modes"`
	Values []*recordedValue             `json:"values"`
}

type recordedValue struct {
	Type     string             `json:"type"`
	OID      uint32             `json:"oid"`
	TypeName string             `json:"type_name"`
	Modifier int32              `json:"modifier"`
	Text     *string            `json:"text"`
	Modes    []string           `json:"modes"`
	Forms    map[string]*string `json:"forms"` // by place; not there: none of use
}

// putColumn are the options that put column c into a place.
var putColumn = map[string]func(*EventOptions){
	"header":   func(ev *EventOptions) { ev.Additional = []string{"c:header:h"} },
	"key":      func(ev *EventOptions) { ev.Key = "c" },
	"envelope": func(ev *EventOptions) { ev.Additional, ev.PayloadFormat = []string{"c:envelope:e"}, FormatJSON },
	"payload":  func(ev *EventOptions) { ev.Payload = "c" },
	"json":     func(ev *EventOptions) { ev.Payload, ev.PayloadFormat = "c", FormatJSON },
	"schema": func(ev *EventOptions) {
		ev.Payload, ev.PayloadFormat, ev.Debezium.ValueSchemas = "c", FormatJSON, true
	},
}

// debeziumEvent are the options of an imported configuration.
func debeziumEvent() EventOptions {
	ev := DefaultEvent()
	ev.Compat, ev.NullKey, ev.PositionHeaders, ev.TypeHeader = CompatDebezium, NullKeyPublish, false, ""
	return ev
}

// handlingOf has the options by Debezium's names.
func handlingOf(t testing.TB, options map[string]string) Handling {
	t.Helper()
	h := DefaultHandling()
	v := reflect.ValueOf(&h).Elem()
	for name, value := range options {
		i := slices.IndexFunc(reflect.VisibleFields(v.Type()), func(f reflect.StructField) bool {
			return f.Tag.Get("yaml") == strings.ReplaceAll(name, ".", "_")
		})
		if i < 0 {
			t.Fatalf("no option for %s", name)
		}
		if f := v.Field(i); f.Kind() == reflect.String {
			f.SetString(value)
		} else {
			must.OK(t, json.Unmarshal([]byte(value), f.Addr().Interface()))
		}
	}
	return h
}

func TestCompatMakesOfEachTypeWhatDebeziumDoes(t *testing.T) {
	var rec recording
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile("testdata/debezium.json"))(t), &rec))
	equal, refused := 0, 0
	for _, v := range rec.Values {
		for _, mode := range v.Modes {
			for place, put := range putColumn {
				ev := debeziumEvent()
				ev.Debezium = handlingOf(t, rec.Modes[mode])
				put(&ev)
				name := fmt.Sprintf("%s %s as %s, %s", v.Type, shown(v.Text), place, mode)
				got, err := v.route(t, ev, place)
				want, ok := v.Forms[place]
				switch {
				case err != nil && ok && want != nil && v.Text != nil && v.Type != "name":
					t.Errorf("%s: %v; want %q", name, err, *want)
				case err == nil && !ok && v.Text != nil:
					t.Errorf("%s: %s; want it refused", name, shown(got))
				case err != nil, !ok: // a column is refused whatever the value
					refused++
				case shown(got) != shown(want):
					t.Errorf("%s: %s; want %s", name, shown(got), shown(want))
				default:
					equal++
				}
			}
		}
	}
	t.Logf("%d equal, %d refused", equal, refused)
	if equal < 10_000 {
		t.Errorf("only %d compared", equal)
	}
}

// enums are the labels of types that tests/debezium creates.
var enums = map[string]string{"mood": "sad,ok", "_mood": "sad,ok"}

func shown(s *string) string {
	if s == nil {
		return "NULL"
	}
	return strconv.Quote(*s)
}

// route returns the form of the value in its place.
func (v *recordedValue) route(t *testing.T, ev EventOptions, place string) (*string, error) {
	t.Helper()
	router := must.Get(New(ev, DefaultRoute()))(t)
	rel := &pg.Relation{Columns: []pg.Column{
		{Name: "id", Type: pgtype.TextOID}, {Name: "aggregatetype", Type: pgtype.TextOID}, {Name: "aggregateid", Type: pgtype.TextOID},
		{Name: "payload", Type: pgtype.TextOID},
		{Name: "c", Type: v.OID, TypeName: v.TypeName, Modifier: v.Modifier, Details: pg.ColumnDetails{Labels: enums[v.TypeName]}},
	}}
	if err := router.Bind(rel); err != nil {
		return nil, err
	}
	values := []pg.Value{textValue("i"), textValue("x"), textValue("k"), textValue("p"), {Kind: pg.Null}}
	if v.Text != nil {
		values[4] = textValue(*v.Text)
	}
	event, err := router.Route(&pg.Row{Relation: rel, Values: values})
	if err != nil {
		return nil, err
	}
	form := event.Record.Value
	switch place {
	case "key":
		form = event.Record.Key
	case "header":
		form, _ = Header(event.Record.Headers, "h")
	}
	if form == nil {
		return nil, nil
	}
	text := string(form)
	if as := router.plan(rel).payload.as; as != nil && as.bytes && place == "payload" {
		text = fmt.Sprintf(`\x%x`, text)
	}
	return &text, nil
}

func textValue(text string) pg.Value { return pg.Value{Kind: pg.Text, Data: []byte(text)} }

func TestArraysAreReadWhateverTheirElements(t *testing.T) {
	for text, want := range map[string][]string{
		`{}`:                             nil,
		`{a,"b,c",NULL,"NULL","",x\ y}`:  {"a", "b,c", "-", "NULL", "", `x\ y`},
		`{{"a}","b"},{"c\"{",d},{"\\"}}`: {"-", "-", "-"},
		`[0:1]={1,2}`:                    {"1", "2"},
	} {
		items, ok := parseArray([]byte(text))
		var got []string
		for _, item := range items {
			if item == nil {
				item = []byte("-")
			}
			got = append(got, string(item))
		}
		if !ok || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", text, got, ok, want)
		}
	}
}

// Text of another type, as of a broken source, is a bad event at worst.
func FuzzConversionsNeverPanic(f *testing.F) {
	var rec recording
	data, err := os.ReadFile("testdata/debezium.json")
	if err != nil {
		f.Fatal(err)
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		f.Fatal(err)
	}
	conversions := map[string]*conversion{}
	for _, v := range rec.Values {
		for mode, options := range rec.Modes {
			h := handlingOf(f, options)
			if as, err := h.of(pg.Column{Name: "c", Type: v.OID, TypeName: v.TypeName, Modifier: v.Modifier}); err == nil && as != nil {
				conversions[v.Type+mode] = as
			}
		}
		if v.Text != nil {
			f.Add(*v.Text)
		}
	}
	f.Add("")
	f.Add(`{"`)
	f.Add(`[`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, as := range conversions {
			value, err := as.convert([]byte(text))
			if err != nil || value == nil {
				continue
			}
			connectHeader(nil, value)
			connectPayload(nil, value)
			if out := connectJSON(nil, value); utf8.ValidString(text) && !json.Valid(escapeAstral(out)) {
				t.Errorf("%q became %q", text, out)
			}
		}
	})
}
