package transform

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Each row named is a bad event with the options, and the option named publishes it.
func TestRowsStricterThanDebezium(t *testing.T) {
	rel := &pg.Relation{Columns: []pg.Column{
		{Name: "id", Type: pgtype.TextOID}, {Name: "aggregatetype", Type: pgtype.TextOID}, {Name: "aggregateid", Type: pgtype.TextOID},
		{Name: "payload", Type: pgtype.TextOID}, {Name: "headers", Type: pgtype.JSONOID},
	}}
	ev, route := DefaultEvent(), RouteOptions{Regex: "(.*)", Topic: "$1"}
	ev.PayloadFormat = FormatJSONExpanded
	want := []string{
		`NULL or empty "aggregateid" (event.null_key)`,
		`"payload" that begins like JSON and is none (event.invalid_json)`,
		`"headers" that is no object of strings, numbers and bools, or names a reserved header (event.headers)`,
		`"aggregatetype" whose topic begins with __ (route.topic)`,
	}
	if got := must.Get(New(ev, route))(t).Stricter(rel); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for i, row := range [][]string{{"x", "", "{}", "{}"}, {"x", "k", "{", "{}"}, {"x", "k", "{}", "[]"}, {"__x", "k", "{}", "{}"}} {
		values := []pg.Value{textValue("1")}
		for _, text := range row {
			values = append(values, textValue(text))
		}
		if _, err := must.Get(New(ev, route))(t).Route(&pg.Row{Relation: rel, Values: values}); err == nil {
			t.Errorf("%s: no bad event", want[i])
		}
		lenient, elsewhere := ev, route
		lenient.NullKey, lenient.InvalidJSON, lenient.Headers = NullKeyPublish, InvalidJSONPublish, HeadersNone
		elsewhere.Topic = "t.$1"
		router := must.Get(New(lenient, elsewhere))(t)
		if _, err := router.Route(&pg.Row{Relation: rel, Values: values}); err != nil {
			t.Errorf("%s: %v", want[i], err)
		}
		if named := router.Stricter(rel); len(named) != 0 {
			t.Errorf("named: %q", named)
		}
	}
}
