package transform

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// The names and values are those of Debezium 3.7.0.
func TestContextHeadersComeFirst(t *testing.T) {
	ev := debeziumEvent()
	ev.Debezium.TopicPrefix = "server"
	ev.Additional = []string{"type:header:eventType"}
	router := must.Get(New(ev, DefaultRoute()))(t)
	rel := &pg.Relation{}
	for _, name := range []string{"id", "aggregatetype", "aggregateid", "type", "payload"} {
		rel.Columns = append(rel.Columns, pg.Column{Name: name, Type: pgtype.TextOID})
	}
	row := &pg.Row{Relation: rel, Values: []pg.Value{textValue("7"), textValue("x"), textValue("k"), textValue("T"), textValue("{}")}}
	for range 2 { // the second has the memory of the first
		event := must.Get(router.Route(row))(t)
		var got []string
		for _, h := range event.Record.Headers {
			got = append(got, h.Key+"="+string(h.Value))
		}
		want := []string{
			"__debezium.context.connectorLogicalName=server", "__debezium.context.taskId=0", "__debezium.context.connectorName=postgresql",
			"id=7", "eventType=T",
		}
		if !slices.Equal(got, want) {
			t.Errorf("headers %q, want %q", got, want)
		}
		event.Release()
	}
	if len(router.context) != 3 {
		t.Errorf("the router's own headers are %v", router.context)
	}
}

func TestTopicsWithUnderscoresAsDebeziumHasThem(t *testing.T) {
	route := DefaultRoute()
	route.Topic = "__${routedByValue}"
	if _, err := New(debeziumEvent(), route); err == nil {
		t.Error("allowed without compat")
	}
	route.Underscores = true
	must.Get(New(debeziumEvent(), route))(t)
	for name, allowed := range map[string]bool{"__orders": true, "__consumer_offsets": false, "__transaction_state": false} {
		if err := route.CheckTopic(name); (err == nil) != allowed {
			t.Errorf("%s: %v", name, err)
		}
	}
}
