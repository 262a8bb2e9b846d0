package outbox_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/envelope"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// listen creates a slot and returns a function reading the messages committed
// since.
func listen(t *testing.T, url string) func() []*pglogrepl.LogicalDecodingMessage {
	t.Helper()
	conn := connect(t, url)
	slot := conn.Config().Database
	for _, sql := range []string{`CREATE PUBLICATION p`, `SELECT pg_create_logical_replication_slot('` + slot + `', 'pgoutput')`} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return func() []*pglogrepl.LogicalDecodingMessage {
		t.Helper()
		rows, err := conn.Query(t.Context(), `SELECT data FROM pg_logical_slot_get_binary_changes($1, NULL, NULL,
			'proto_version', '1', 'publication_names', 'p', 'messages', 'true')`, slot)
		if err != nil {
			t.Fatal(err)
		}
		changes, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if err != nil {
			t.Fatal(err)
		}
		var messages []*pglogrepl.LogicalDecodingMessage
		for _, change := range changes {
			m, err := pglogrepl.Parse(change)
			if err != nil {
				t.Fatal(err)
			}
			if m, ok := m.(*pglogrepl.LogicalDecodingMessage); ok {
				messages = append(messages, m)
			}
		}
		return messages
	}
}

func TestAllClientsEmitWhatWasGiven(t *testing.T) {
	url := newDB(t)
	read := listen(t, url)
	payload := []byte("{ \"b\": 1,\"a\": \"茶\\\\\" }")
	for name, tt := range map[string]struct {
		opts   outbox.Options
		prefix string
		binary bool
	}{
		"text":  {outbox.Options{Payload: outbox.JSON}, "outbox", false},
		"bytes": {outbox.Options{Payload: outbox.Bytes, Prefix: "my'prefix"}, "my'prefix", true},
	} {
		for client, begin := range clients(t, url) {
			t.Run(name+" "+client, func(t *testing.T) {
				e := order(`42 \x "`)
				e.Payload, e.Headers = payload, map[string]string{"a": "<b>"}
				gone := order("1")
				gone.Payload = outbox.NoPayload
				tx, commit := begin(t)
				w := newWriter(t, tt.opts)
				var ids []uuid.UUID
				for _, events := range [][]outbox.Event{{e, gone}, {e}, {gone}} { // a single event has a separate statement
					emitted, err := w.Emit(t.Context(), tx, events...)
					if err != nil {
						t.Fatal(err)
					}
					ids = append(ids, emitted...)
				}
				if err := commit(); err != nil {
					t.Fatal(err)
				}
				messages := read()
				if len(messages) != len(ids) {
					t.Fatalf("%d messages, want %d", len(messages), len(ids))
				}
				for i, m := range messages {
					if m.Prefix != tt.prefix || !m.Transactional {
						t.Errorf("message with the prefix %s, transactional: %t", m.Prefix, m.Transactional)
					}
					want := []outbox.Event{e, gone, e, gone}[i]
					wantMessage(t, m.Content, ids[i], want, tt.binary)
				}
			})
		}
	}
}

func wantMessage(t *testing.T, content []byte, id uuid.UUID, e outbox.Event, binary bool) {
	t.Helper()
	var got envelope.Message
	if err := got.Decode(content); err != nil {
		t.Fatal(err)
	}
	if string(got.ID) != id.String() || string(got.AggregateType) != e.AggregateType || string(got.AggregateID) != e.AggregateID ||
		string(got.Type) != e.Type || got.Binary != binary {
		t.Errorf("message %q", content)
	}
	if e.Payload == outbox.NoPayload {
		if got.Payload != nil || got.Headers != nil {
			t.Errorf("payload %q and headers %q, want NULL", got.Payload, got.Headers)
		}
		return
	}
	if !bytes.Equal(got.Payload, e.Payload.([]byte)) {
		t.Errorf("payload %q, want %q", got.Payload, e.Payload)
	}
	var headers map[string]string
	if err := json.Unmarshal(got.Headers, &headers); err != nil || !maps.Equal(headers, e.Headers) {
		t.Errorf("headers %s (%v), want %v", got.Headers, err, e.Headers)
	}
}

func TestManyMessagesKeepTheirOrder(t *testing.T) {
	url := newDB(t)
	read := listen(t, url)
	const n = 2500 // several statements
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = order(fmt.Sprint(n - i))
	}
	tx := begin(t, url)
	ids, err := outbox.Emit(t.Context(), tx, events...)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	messages := read()
	if len(messages) != n {
		t.Fatalf("%d messages, want %d", len(messages), n)
	}
	for i, m := range messages {
		var got envelope.Message
		if err := got.Decode(m.Content); err != nil {
			t.Fatal(err)
		}
		if string(got.ID) != ids[i].String() || string(got.AggregateID) != events[i].AggregateID {
			t.Fatalf("message %d is %s %s, want %s %s", i, got.ID, got.AggregateID, ids[i], events[i].AggregateID)
		}
	}
}
