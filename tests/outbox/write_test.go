package outbox_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// stored is a row in PostgreSQL.
type stored struct {
	ID, AggregateType, AggregateID, Type string
	Payload                              []byte
	Headers                              map[string]string
}

// readRows returns the rows of a table in the order of their insertion.
func readRows(t testing.TB, url, table string, columns ...string) []stored {
	t.Helper()
	rows, err := connect(t, url).Query(t.Context(),
		`SELECT `+strings.Join(columns, ", ")+` FROM `+table+` ORDER BY tableoid, ctid`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stored])
	if err != nil {
		t.Fatal(err)
	}
	return got
}

var debezium = []string{"id::text", "aggregatetype", "aggregateid", "type", "convert_to(payload::text, 'UTF8')", "headers"}

// awkward are texts some encoding on the way could spoil.
var awkward = []string{
	"plain", " ", `quote " and backslash \`, `\x41`, `\\`, `{"a","b"}`, "NULL", "null", "comma, brace }", "line\nand\ttab\r",
	"apostrophe '", "$1", "$$", "Grüße 茶筅 🍵", "\u2028", "\x01\x7f", "'; DROP TABLE outbox; --",
}

func TestAllClientsStoreWhatWasGiven(t *testing.T) {
	url := newDB(t, outbox.Schema)
	var events []outbox.Event
	for i, text := range awkward {
		events = append(events, outbox.Event{
			AggregateType: text, AggregateID: fmt.Sprintf("%d %s", i, text), Type: text,
			Payload: map[string]string{"text": text},
			Headers: map[string]string{"text": text, text: "name"},
		})
	}
	events = append(events, outbox.Event{AggregateType: "order", AggregateID: "none", Type: "Removed", Payload: outbox.NoPayload})
	w := newWriter(t, outbox.Options{})

	for name, begin := range clients(t, url) {
		t.Run(name, func(t *testing.T) {
			_, err := connect(t, url).Exec(t.Context(), `TRUNCATE outbox`)
			if err != nil {
				t.Fatal(err)
			}
			tx, commit := begin(t)
			ids, err := w.Write(t.Context(), tx, events...)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events { // one has a separate statement
				id, err := w.Write(t.Context(), tx, e)
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id...)
			}
			if err := commit(); err != nil {
				t.Fatal(err)
			}
			got := readRows(t, url, "outbox", debezium...)
			if len(got) != 2*len(events) {
				t.Fatalf("%d rows, want %d", len(got), 2*len(events))
			}
			for i := range got {
				wantRow(t, got[i], ids[i], events[i%len(events)])
			}
		})
	}
}

func wantRow(t *testing.T, got stored, id uuid.UUID, e outbox.Event) {
	t.Helper()
	if got.ID != id.String() || got.AggregateType != e.AggregateType || got.AggregateID != e.AggregateID || got.Type != e.Type {
		t.Errorf("stored %+v, want %s %+v", got, id, e)
	}
	if e.Payload == outbox.NoPayload {
		if got.Payload != nil || got.Headers != nil {
			t.Errorf("stored payload %s and headers %v, want NULL", got.Payload, got.Headers)
		}
		return
	}
	var payload map[string]string
	if err := json.Unmarshal(got.Payload, &payload); err != nil || !maps.Equal(payload, e.Payload.(map[string]string)) {
		t.Errorf("stored payload %s (%v), want %v", got.Payload, err, e.Payload)
	}
	if !maps.Equal(got.Headers, e.Headers) {
		t.Errorf("stored headers %v, want %v", got.Headers, e.Headers)
	}
}

func TestPayloadTypesKeepTheirBytes(t *testing.T) {
	allBytes := make([]byte, 256)
	for i := range allBytes {
		allBytes[i] = byte(i)
	}
	spaced := []byte("{ \"b\": 1.0,\n\"a\": \"\\u0000\\ud800\" }")
	for name, tt := range map[string]struct {
		payload outbox.PayloadType
		column  string
		back    string // everything read back, as bytea
		give    any
		want    []byte
	}{
		"jsonb":                {outbox.JSONB, "jsonb", "convert_to(payload::text, 'UTF8')", []byte(`{"b":1.0,"a":[]}`), []byte(`{"a": [], "b": 1.0}`)},
		"json":                 {outbox.JSON, "json", "convert_to(payload::text, 'UTF8')", spaced, spaced},
		"json in text":         {outbox.JSON, "text", "convert_to(payload, 'UTF8')", spaced, spaced},
		"json in varchar":      {outbox.JSON, "varchar(100)", "convert_to(payload, 'UTF8')", spaced, spaced},
		"string as text":       {outbox.Text, "text", "convert_to(payload, 'UTF8')", `a "string"`, []byte(`a "string"`)},
		"string as bytes":      {outbox.Bytes, "bytea", "payload", "\xff\x00", []byte("\xff\x00")},
		"string as JSON":       {outbox.JSON, "text", "convert_to(payload, 'UTF8')", `a "string"`, []byte(`"a \"string\""`)},
		"text":                 {outbox.Text, "text", "convert_to(payload, 'UTF8')", []byte(`no "JSON" \ at all 茶`), []byte(`no "JSON" \ at all 茶`)},
		"empty text":           {outbox.Text, "text", "convert_to(payload, 'UTF8')", []byte{}, []byte{}},
		"bytes":                {outbox.Bytes, "bytea", "payload", allBytes, allBytes},
		"no bytes, not NULL":   {outbox.Bytes, "bytea", "payload", []byte{}, []byte{}},
		"bytes, hex lookalike": {outbox.Bytes, "bytea", "payload", []byte(`\x41`), []byte(`\x41`)},
	} {
		t.Run(name, func(t *testing.T) {
			url := newDB(t, `CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text, aggregateid varchar(9), type text, headers json, payload `+tt.column+`)`)
			w := newWriter(t, outbox.Options{Payload: tt.payload})
			for client, begin := range clients(t, url) {
				tx, commit := begin(t)
				e := order("1")
				e.Payload, e.Headers = tt.give, map[string]string{"a": "b"}
				for _, events := range [][]outbox.Event{{e}, {e, e}} { // one has a separate statement
					if _, err := w.Write(t.Context(), tx, events...); err != nil {
						t.Fatalf("%s: %v", client, err)
					}
				}
				if err := commit(); err != nil {
					t.Fatal(err)
				}
			}
			rows := readRows(t, url, "outbox", "id", "aggregatetype", "aggregateid", "type", tt.back, "headers")
			if want := 3 * len(clients(t, url)); len(rows) != want {
				t.Errorf("%d rows, want %d", len(rows), want)
			}
			for _, row := range rows {
				if !bytes.Equal(row.Payload, tt.want) || row.Payload == nil || row.Headers["a"] != "b" {
					t.Errorf("stored %q and %v, want %q", row.Payload, row.Headers, tt.want)
				}
			}
		})
	}
}

func TestTableTakesOtherNames(t *testing.T) {
	for name, tt := range map[string]struct {
		table   outbox.Table
		ddl     []string
		from    string
		columns []string
	}{
		"snake case without headers": {
			outbox.Table{Schema: "app", Columns: outbox.SnakeCase(), NoHeaders: true},
			[]string{`CREATE SCHEMA app`, `CREATE TABLE app.outbox (id uuid PRIMARY KEY, aggregate_type varchar(255) NOT NULL,
				aggregate_id varchar(255) NOT NULL, event_type varchar(255) NOT NULL, payload jsonb NOT NULL,
				created_at timestamptz NOT NULL DEFAULT now(), published boolean NOT NULL DEFAULT false, published_at timestamptz)`},
			"app.outbox",
			[]string{"id::text", "aggregate_type", "aggregate_id", "event_type", "convert_to(payload::text, 'UTF8')", "NULL::jsonb"},
		},
		"names that need quotes": {
			outbox.Table{Schema: `My "Schema"`, Name: `out; box'$1`, Columns: outbox.Columns{
				ID: "Id", AggregateType: "aggregate type", AggregateID: `"`, Type: "select", Payload: "a", Headers: "position",
			}},
			[]string{`CREATE SCHEMA "My ""Schema"""`, `CREATE TABLE "My ""Schema"""."out; box'$1"
				("Id" uuid, "aggregate type" text, """" text, "select" text, a jsonb, position jsonb)`},
			`"My ""Schema"""."out; box'$1"`,
			[]string{`"Id"::text`, `"aggregate type"`, `""""`, `"select"`, "convert_to(a::text, 'UTF8')", "position"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := newDB(t, tt.ddl...)
			w := newWriter(t, outbox.Options{Table: tt.table})
			tx := begin(t, url)
			e := order("7")
			if !tt.table.NoHeaders {
				e.Headers = map[string]string{"k": "v"}
			}
			ids, err := w.Write(t.Context(), outbox.PGX(tx), e)
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := readRows(t, url, tt.from, tt.columns...)
			if len(got) != 1 {
				t.Fatalf("%d rows, want 1", len(got))
			}
			wantRow(t, got[0], ids[0], e)
		})
	}
}

func TestManyEventsKeepTheirOrder(t *testing.T) {
	url := newDB(t, outbox.Schema, `ALTER TABLE outbox ADD COLUMN n bigint GENERATED ALWAYS AS IDENTITY`)
	const n = 2500 // several statements
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = order(fmt.Sprint(n - i))
	}
	tx := begin(t, url)
	ids, err := outbox.Write(t.Context(), tx, events...)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := tx.Query(t.Context(), `SELECT id, aggregateid FROM outbox ORDER BY n`)
	if err != nil {
		t.Fatal(err)
	}
	type pair struct {
		ID          uuid.UUID
		AggregateID string
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pair])
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != n || len(ids) != n {
		t.Fatalf("%d rows and %d ids, want %d", len(got), len(ids), n)
	}
	for i, row := range got {
		if row.ID != ids[i] || row.AggregateID != events[i].AggregateID {
			t.Fatalf("row %d is %v, want %s %s", i, row, ids[i], events[i].AggregateID)
		}
	}
}
