package transform_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func newRouter(t testing.TB, change func(*config.Config)) *transform.Router {
	t.Helper()
	cfg := config.Default()
	if change != nil {
		change(&cfg)
	}
	return must.Get(transform.New(cfg.Event, cfg.Route))(t)
}

// relation returns a table of text columns.
func relation(oid uint32, name string, columns ...string) *pg.Relation {
	rel := &pg.Relation{OID: oid, Namespace: "public", Name: name}
	for _, c := range columns {
		rel.Columns = append(rel.Columns, pg.Column{Name: c, Type: typeOIDs["text"]})
	}
	return rel
}

func outboxTable() *pg.Relation {
	return relation(1, "outbox", "id", "aggregatetype", "aggregateid", "type", "payload")
}

// insert returns a row with the values the columns' names with a suffix.
func insert(rel *pg.Relation, suffix string) *pg.Row {
	row := &pg.Row{Relation: rel, CommitTime: commitTime, Position: pg.Position{CommitLSN: 1}}
	for _, c := range rel.Columns {
		row.Values = append(row.Values, pg.Value{Kind: pg.Text, Data: []byte(c.Name + suffix)})
	}
	return row
}

func route(t *testing.T, r *transform.Router, row *pg.Row) *transform.Event {
	t.Helper()
	return must.Get(r.Route(row))(t)
}

func wantBad(t *testing.T, err error, reason transform.Reason) {
	t.Helper()
	if bad, ok := errors.AsType[*transform.BadEvent](err); !ok || bad.Reason != reason {
		t.Errorf("error = %v, want a bad event: %s", err, reason)
	}
}

func TestTablesOfDifferentStructure(t *testing.T) {
	router := newRouter(t, nil)
	orders := relation(1, "orders", "id", "aggregatetype", "aggregateid", "type", "payload")
	users := relation(2, "Users", "payload", "event_type", "aggregate_id", "extra", "aggregate_type", "id")
	for i := range 3 {
		suffix := fmt.Sprint(i)
		a, b := route(t, router, insert(orders, suffix)), route(t, router, insert(users, suffix))
		if got, want := a.Record.Topic+" "+string(a.Record.Key), "outbox.event.aggregatetype"+suffix+" aggregateid"+suffix; got != want {
			t.Errorf("orders: %s, want %s", got, want)
		}
		if got, want := b.Record.Topic+" "+string(b.Record.Key), "outbox.event.aggregate_type"+suffix+" aggregate_id"+suffix; got != want {
			t.Errorf("users: %s, want %s", got, want)
		}
		if a.Table != "public.orders" || b.Table != `public."Users"` {
			t.Errorf("tables = %s, %s", a.Table, b.Table)
		}
	}
}

func TestTableChangesMidStream(t *testing.T) {
	router := newRouter(t, nil)
	before := outboxTable()
	route(t, router, insert(before, ""))

	reordered := relation(1, "outbox", "payload", "type", "added", "aggregateid", "aggregatetype", "id")
	if ev := route(t, router, insert(reordered, "")); string(ev.Record.Value) != "payload" || string(ev.ID) != "id" {
		t.Errorf("after the change: id %s, value %s", ev.ID, ev.Record.Value)
	}

	without := relation(1, "outbox", "id", "aggregatetype", "type", "payload")
	row := insert(without, `"é`)
	row.Values[3] = pg.Value{Kind: pg.Null}
	ev, err := router.Route(row)
	wantBad(t, err, transform.ReasonMissingColumn)
	if !strings.Contains(err.Error(), "aggregateid") || string(ev.ID) != `id"é` || ev.Record.Key != nil || ev.Position != row.Position ||
		string(ev.Record.Value) != `{"id":"id\"é","aggregatetype":"aggregatetype\"é","type":"type\"é","payload":null}` {
		t.Errorf("without a required column: %v, %s, %s", err, ev.ID, ev.Record.Value)
	}
	if err := router.Bind(without); err == nil || failure.ClassOf(err) != failure.Config {
		t.Errorf("Bind = %v, want an error of the configuration", err)
	}
	if ev := route(t, router, insert(before, "")); string(ev.Record.Value) != "payload" {
		t.Errorf("after the change was undone: %s", ev.Record.Value)
	}
}

func TestKeyColumn(t *testing.T) {
	router := newRouter(t, nil)
	rel := relation(1, "outbox", "id", "aggregate_type", "aggregate_id", "payload")
	if name, err := router.KeyColumn(rel); name != "aggregate_id" || err != nil {
		t.Errorf("KeyColumn = %q, %v", name, err)
	}
	if _, err := router.KeyColumn(relation(2, "outbox", "id", "aggregate_type")); failure.ClassOf(err) != failure.Config {
		t.Errorf("without a key: %v", err)
	}
}

func TestNeeded(t *testing.T) {
	router := newRouter(t, func(c *config.Config) { c.Event.Additional = []string{"tenant:header"} })
	rel := relation(1, "outbox", "id", "aggregatetype", "aggregateid", "aggregate_id", "type", "payload", "tenant", "note")
	// Either of the two keys would do, type is optional.
	want := []string{"id", "aggregatetype", "payload", "tenant"}
	if got, err := router.Needed(rel); !slices.Equal(got, want) || err != nil {
		t.Errorf("Needed = %v, %v, want %v", got, err, want)
	}
	rel.Columns = rel.Columns[1:]
	if got, err := router.Needed(rel); got != nil || failure.ClassOf(err) != failure.Config {
		t.Errorf("without an id: %v, %v", got, err)
	}
}

func TestPositionHeadersFollowTheTransaction(t *testing.T) {
	router := newRouter(t, nil)
	rel := outboxTable()
	for _, tt := range []struct {
		lsn      pg.LSN
		seq, xid uint32
		want     string
	}{
		{0x10, 0, 5, "0/10 0 5"},
		{0x10, 255, 5, "0/10 255 5"},
		{0x10, 256, 5, "0/10 256 5"},
		{0xFFFFFFFF00000010, 4294967295, 6, "FFFFFFFF/10 4294967295 6"},
		{0x10, 1, 6, "0/10 1 6"},
		{0x10, 1, 4294967295, "0/10 1 4294967295"},
	} {
		row := insert(rel, "")
		row.Position, row.XID = pg.Position{CommitLSN: tt.lsn, Seq: tt.seq}, tt.xid
		h := route(t, router, row).Record.Headers
		h = h[len(h)-4:]
		if got := fmt.Sprintf("%s %s %s %s", h[0].Value, h[1].Value, h[2].Value, h[3].Value); got != tt.want+" 2026-08-01T12:00:00.250000Z" {
			t.Errorf("headers = %s, want %s", got, tt.want)
		}
	}
}

// Two events must not share room for headers: producing sets and appends.
func TestEventsDoNotShareHeaders(t *testing.T) {
	router := newRouter(t, nil)
	rel := outboxTable()
	a, b := route(t, router, insert(rel, "a")), route(t, router, insert(rel, "b"))
	for range 10 {
		a.Record.Headers = append(a.Record.Headers, a.Record.Headers[0])
	}
	if got := string(b.Record.Headers[0].Value); got != "idb" {
		t.Errorf("header id = %s", got)
	}
}

func TestHeadersTooLarge(t *testing.T) {
	router := newRouter(t, func(c *config.Config) {
		c.Event.Additional = []string{"note:header"}
		c.Event.PositionHeaders = false
	})
	rel := relation(1, "outbox", "id", "aggregatetype", "aggregateid", "type", "payload", "note")
	row := insert(rel, "")
	rest := len("id"+"id") + len("eventType"+"type") + len("note")
	row.Values[5].Data = make([]byte, 256<<10-rest)
	route(t, router, row)

	row.Values[5].Data = make([]byte, 256<<10-rest+1)
	ev, err := router.Route(row)
	wantBad(t, err, transform.ReasonHeadersTooLarge)
	if ev == nil || string(ev.Record.Value) != "payload" {
		t.Errorf("event = %v", ev)
	}
}

func TestUnreadableRows(t *testing.T) {
	rel := outboxTable()
	rel.Columns[4].Type = typeOIDs["bytea"]
	for _, tt := range []struct {
		name   string
		change func(*pg.Row)
	}{
		{"value not sent", func(r *pg.Row) { r.Values[3] = pg.Value{Kind: pg.UnchangedToast} }},
		{"too few values", func(r *pg.Row) { r.Values = r.Values[:4] }},
		{"too many values", func(r *pg.Row) { r.Values = append(r.Values, pg.Value{Kind: pg.Null}) }},
		{"bytea in escape format", func(r *pg.Row) { r.Values[4].Data = []byte(`a\000`) }},
		{"bytea of odd length", func(r *pg.Row) { r.Values[4].Data = []byte(`\x0`) }},
		{"bytea that is not hex", func(r *pg.Row) { r.Values[4].Data = []byte(`\xzz`) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			row := insert(rel, "")
			row.Values[4].Data = []byte(`\x00`)
			tt.change(row)
			ev, err := newRouter(t, nil).Route(row)
			wantBad(t, err, transform.ReasonUnreadableContents)
			if ev == nil || ev.Table != "public.outbox" || ev.Position != row.Position {
				t.Errorf("event = %+v", ev)
			}
		})
	}
}

// The first reason is the event's, and the rest of the event is still built.
func TestSeveralThingsWrong(t *testing.T) {
	row := insert(outboxTable(), "")
	row.Values[1] = pg.Value{Kind: pg.Null}
	row.Values[2] = pg.Value{Kind: pg.Null}
	ev, err := newRouter(t, nil).Route(row)
	wantBad(t, err, transform.ReasonNullKey)
	if string(ev.ID) != "id" || string(ev.Record.Value) != "payload" || len(ev.Record.Headers) != 6 {
		t.Errorf("event = %+v", ev)
	}
}

// The stream may give an empty text as nil; only NULL is a null in the record.
func TestEmptyTextIsNotNull(t *testing.T) {
	row := insert(outboxTable(), "")
	row.Values[3].Data, row.Values[4].Data = nil, nil
	ev := route(t, newRouter(t, nil), row)
	if ev.Record.Value == nil || ev.Record.Headers[1].Value == nil {
		t.Errorf("value = %v, header = %v", ev.Record.Value, ev.Record.Headers[1].Value)
	}
	want := len("aggregateid") + len("id"+"id") + len("eventType") + len("cdc-lsn"+"0/1") + len("cdc-seq"+"0") + len("cdc-xid"+"0") + len("cdc-time2026-08-01T12:00:00.250000Z")
	if got := ev.Size(); got != int64(want) {
		t.Errorf("size = %d, want %d", got, want)
	}
}

func TestZeroCopy(t *testing.T) {
	row := insert(outboxTable(), "")
	ev := route(t, newRouter(t, nil), row)
	if &ev.Record.Value[0] != &row.Values[4].Data[0] || &ev.Record.Key[0] != &row.Values[2].Data[0] {
		t.Error("key or value were copied")
	}
	clear(row.Values) // the stream reuses them
	if string(ev.Record.Value) != "payload" {
		t.Error("the event refers to the row's Values")
	}
}

func TestRouteAllocates(t *testing.T) {
	router, row := benchmarkRow(t, nil)
	if n := testing.AllocsPerRun(1000, func() { _, _ = router.Route(row) }); n > 1 {
		t.Errorf("%v allocations for an event, want 1", n)
	}
}

func benchmarkRow(t testing.TB, change func(*config.Config)) (*transform.Router, *pg.Row) {
	rel := outboxTable()
	rel.Columns[4].Type = typeOIDs["jsonb"]
	row := insert(rel, "")
	row.Position, row.XID, row.CommitTime = pg.Position{CommitLSN: 0x16B374D848, Seq: 7}, 777, time.Unix(0, 0)
	row.Values[4].Data = []byte(`{"id": 42, "lines": [` + strings.Repeat(`{"sku": "A-1", "price": 10.50, "note": null},`, 11) + `{}]}`)
	return newRouter(t, change), row
}

// BenchmarkRoute routes a row of five columns and a payload of about 500 bytes.
func BenchmarkRoute(b *testing.B) {
	for _, bm := range []struct {
		name   string
		change func(*config.Config)
	}{
		{"raw", nil},
		{"json", func(c *config.Config) { c.Event.PayloadFormat = transform.FormatJSON }},
		{"json_expanded", func(c *config.Config) { c.Event.PayloadFormat = transform.FormatJSONExpanded }},
		{"envelope", func(c *config.Config) { c.Event.Additional = []string{"type:envelope"} }},
		{"compat", func(c *config.Config) { c.Event.Compat = transform.CompatDebezium }},
		{"compat, json_expanded", func(c *config.Config) {
			c.Event.Compat, c.Event.PayloadFormat = transform.CompatDebezium, transform.FormatJSONExpanded
		}},
		{"compat, json_expanded, schemas", func(c *config.Config) {
			c.Event.Compat, c.Event.PayloadFormat = transform.CompatDebezium, transform.FormatJSONExpanded
			c.Event.Debezium.ValueSchemas = true
		}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			router, row := benchmarkRow(b, bm.change)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := router.Route(row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
