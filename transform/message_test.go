package transform_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/envelope"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// message returns the logical message carrying m.
func message(t testing.TB, m *envelope.Message) *wal.Message {
	t.Helper()
	content := must.Get(envelope.Encode(m))(t)
	return &wal.Message{
		Kind:    wal.LogicalMessage,
		Prefix:  "outbox",
		Content: content,
		Row:     pg.Row{Position: pg.Position{CommitLSN: 0x16B374D848, Seq: 3}, XID: 777, CommitTime: commitTime},
	}
}

func order() *envelope.Message {
	return &envelope.Message{
		ID:            []byte("7b1d5a1c-3c1f-4a53-9d0e-0a4fb3c1a001"),
		AggregateType: []byte("order"),
		AggregateID:   []byte("42"),
		Type:          []byte("OrderCreated"),
		Payload:       []byte(`{"id": 42}`),
		Headers:       []byte(`{"tenant": "a"}`),
	}
}

// row returns the row of a table that m's fields would be in.
func row(m *envelope.Message, payloadType string) *pg.Row {
	rel := relation(16384, "outbox", "id", "aggregatetype", "aggregateid", "type", "payload", "headers")
	rel.Columns[4].Type, rel.Columns[5].Type = typeOIDs[payloadType], typeOIDs["json"]
	r := &pg.Row{Relation: rel, Position: pg.Position{CommitLSN: 0x16B374D848, Seq: 3}, XID: 777, CommitTime: commitTime}
	for i, field := range [][]byte{m.ID, m.AggregateType, m.AggregateID, m.Type, m.Payload, m.Headers} {
		v := pg.Value{Kind: pg.Null}
		if field != nil {
			v = pg.Value{Kind: pg.Text, Data: field}
			if i == 4 && payloadType == "bytea" {
				v.Data = []byte(`\x` + hex.EncodeToString(field))
			}
		}
		r.Values = append(r.Values, v)
	}
	return r
}

func routed(t *testing.T, ev *transform.Event, err error) outcome {
	t.Helper()
	bad, isBad := errors.AsType[*transform.BadEvent](err)
	if err != nil && !isBad {
		t.Fatal(err)
	}
	return recorded(ev, bad)
}

// A message becomes what a row with the fields becomes, whatever is in them and
// whatever is configured, good or bad.
func TestMessageBecomesWhatARowBecomes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(values ...string) []byte {
		if i := random.IntN(len(values) + 1); i < len(values) {
			return []byte(values[i])
		}
		return nil
	}
	options := []string{transform.FormatRaw, transform.FormatJSON, transform.FormatJSONExpanded}
	for n := range 5000 {
		router := newRouter(t, func(c *config.Config) {
			c.Event.PayloadFormat = options[random.IntN(len(options))]
			c.Event.TombstoneOnEmptyPayload = random.IntN(2) == 0
			if random.IntN(4) == 0 {
				c.Event.Additional = []string{"type:envelope:kind", "aggregatetype:header"}
			}
			if random.IntN(4) == 0 {
				c.Route.By = "type"
			}
			if random.IntN(4) == 0 {
				c.Event.NullKey = transform.NullKeyPublish
			}
		})
		m := &envelope.Message{
			ID:            pick("7b1d5a1c-3c1f-4a53-9d0e-0a4fb3c1a001"),
			AggregateType: pick("order", "Ärger", ""),
			AggregateID:   pick("42", "größe", ""),
			Type:          pick("OrderCreated", ""),
			Payload:       pick(`{"id": 42, "none": null}`, `text "quoted"`, "", " ", `{"broken`, `[1, "a"]`),
			Headers:       pick(`{"tenant": "a"}`, `{}`, `[]`, `{"id": "x"}`),
		}
		payloadType := []string{"text", "jsonb", "bytea"}[random.IntN(3)]
		m.Binary = payloadType == "bytea"
		ev, err := router.Route(row(m, payloadType))
		want := routed(t, ev, err)
		ev, err = router.RouteMessage(message(t, m))
		if got := routed(t, ev, err); !reflect.DeepEqual(got, want) {
			t.Fatalf("message %d, %+v\ngot:\n%s\nwant:\n%s", n, m, encode(t, got), encode(t, want))
		}
	}
}

func TestMessageKnowsItsOrigin(t *testing.T) {
	router := newRouter(t, nil)
	msg := message(t, order())
	ev := must.Get(router.RouteMessage(msg))(t)
	if ev.Table != "message outbox" || ev.Position != msg.Row.Position || ev.XID != 777 || !ev.CommitTime.Equal(commitTime) {
		t.Errorf("event %+v", ev)
	}
	msg.Prefix = "other"
	if ev, _ = router.RouteMessage(msg); ev.Table != "message other" {
		t.Errorf("table %q", ev.Table)
	}
}

func TestBytesAreNoTextWhereTheyWouldBeShownSo(t *testing.T) {
	m := order()
	m.Binary, m.Payload = true, []byte{0, 0xff}
	raw, err := newRouter(t, nil).RouteMessage(message(t, m))
	if err != nil || string(raw.Record.Value) != "\x00\xff" {
		t.Errorf("raw: %q, %v", raw.Record.Value, err)
	}
	inJSON, err := newRouter(t, func(c *config.Config) { c.Event.PayloadFormat = transform.FormatJSON }).RouteMessage(message(t, m))
	if err != nil || string(inJSON.Record.Value) != `"AP8="` {
		t.Errorf("json: %q, %v", inJSON.Record.Value, err)
	}
}

func TestBadMessages(t *testing.T) {
	whole := message(t, order())
	for _, tt := range []struct {
		name   string
		change func(*wal.Message)
		want   transform.Reason
		id     string
	}{
		{"no envelope", func(m *wal.Message) { m.Content = []byte("hello") }, transform.ReasonUnreadableContents, ""},
		{"empty", func(m *wal.Message) { m.Content = nil }, transform.ReasonUnreadableContents, ""},
		{"cut off", func(m *wal.Message) { m.Content = m.Content[:len(m.Content)-1] }, transform.ReasonUnreadableContents, string(order().ID)},
		{"of no transaction", func(m *wal.Message) { m.NonTransactional = true }, transform.ReasonNotTransactional, string(order().ID)},
		{"payload not UTF-8", func(m *wal.Message) {
			o := order()
			o.Payload = []byte("\xff")
			m.Content = message(t, o).Content
		}, transform.ReasonInvalidUTF8, string(order().ID)},
		{"key not UTF-8", func(m *wal.Message) {
			o := order()
			o.AggregateID = []byte("\xff")
			m.Content = message(t, o).Content
		}, transform.ReasonInvalidUTF8, string(order().ID)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			msg := *whole
			tt.change(&msg)
			ev, err := newRouter(t, nil).RouteMessage(&msg)
			wantBad(t, err, tt.want)
			if string(ev.ID) != tt.id || ev.Position != msg.Row.Position || ev.Table != "message outbox" {
				t.Errorf("event %+v", ev)
			}
			if tt.want == transform.ReasonUnreadableContents && string(ev.Record.Value) != string(msg.Content) {
				t.Errorf("a dead letter would hold %q, not the content", ev.Record.Value)
			}
		})
	}
}

// Options naming a table's columns are for the tables beside the messages, and
// mistakes where there are none.
func TestBindMessages(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*config.Config)
		unknown string // keys that messages alone do not allow
	}{
		{"defaults", nil, ""},
		{"the names of fields", func(c *config.Config) {
			c.Event.ID, c.Event.Key, c.Event.Type, c.Event.Payload, c.Route.By = "id", "aggregate_id", "event_type", "payload", "type"
			c.Event.Headers, c.Event.Additional = "headers", []string{"aggregate_type:header:kind"}
		}, ""},
		{"no headers", func(c *config.Config) { c.Event.Headers = transform.HeadersNone }, ""},
		{"the names of others", func(c *config.Config) {
			c.Event.ID, c.Event.Key, c.Event.Type, c.Event.Payload, c.Route.By = "a", "b", "c", "d", "e"
			c.Event.Timestamp, c.Event.SchemaVersion, c.Event.Tracing, c.Event.Headers = "f", "g", "h", "i"
			c.Event.Additional = []string{"j:header"}
		}, "event.id event.key event.type event.payload event.timestamp event.schema_version event.tracing route.by event.headers event.additional"},
		{"additional ones that may be missing", func(c *config.Config) {
			c.Event.Additional, c.Event.AdditionalMissing = []string{"tenant:header"}, transform.MissingIgnore
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			router := newRouter(t, tt.change)
			if err := router.BindMessages(false); err != nil {
				t.Errorf("beside tables: %v", err)
			}
			var keys []string
			err := router.BindMessages(true)
			for _, r := range refusals(t, err) {
				key, _, _ := strings.Cut(r.Error, ":")
				keys = append(keys, key)
			}
			if got := strings.Join(keys, " "); got != tt.unknown {
				t.Errorf("alone: %q, want %q", got, tt.unknown)
			}
			ev, err := router.RouteMessage(message(t, order()))
			if err != nil || string(ev.Record.Key) != "42" || !bytes.Contains(ev.Record.Value, []byte(`{"id": 42}`)) {
				t.Errorf("event %+v, %v", ev, err)
			}
		})
	}

	err := newRouter(t, func(c *config.Config) { c.Event.Timestamp = "payload" }).BindMessages(false)
	if failure.ClassOf(err) != failure.Config {
		t.Errorf("a timestamp of text: %v", err)
	}
}

func refusals(t *testing.T, err error) []refusal {
	if err == nil {
		return nil
	}
	return refused(t, err).Refused
}

func TestRouteMessageAllocates(t *testing.T) {
	o := order()
	o.Headers = nil
	router, msg := newRouter(t, nil), message(t, o)
	if n := testing.AllocsPerRun(1000, func() { _, _ = router.RouteMessage(msg) }); n > 1 {
		t.Errorf("%v allocations for an event, want 1", n)
	}
}

func TestRouteMessageCopiesNothing(t *testing.T) {
	msg := message(t, order())
	ev := must.Get(newRouter(t, nil).RouteMessage(msg))(t)
	at := strings.Index(string(msg.Content), `{"id": 42}`)
	if &ev.Record.Value[0] != &msg.Content[at] {
		t.Error("the payload was copied")
	}
}

func BenchmarkRouteMessage(b *testing.B) {
	_, r := benchmarkRow(b, nil)
	o := order()
	o.Headers, o.Payload = nil, r.Values[4].Data
	router, msg := newRouter(b, nil), message(b, o)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := router.RouteMessage(msg); err != nil {
			b.Fatal(err)
		}
	}
}
