package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Failure mode 64: a record in the checkpoint topic, an event routed there or
// written by another program, has the connector's key and reads as a checkpoint
// behind events to come. The next start believes the real checkpoint.
func TestE2EForgedCheckpoint(t *testing.T) {
	for _, how := range []string{"routed", "written"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, options{direct: true, unread: true,
				config: "route:\n  topic: ${routedByValue}\nerrors:\n  on_bad_event: dead_letter\n"})
			c := w.start()
			w.routed(1, topicOf("order"), "o-1", "{}")
			w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(1))
			key := strings.TrimPrefix(w.transactionalID(), "cdc-outbox/")
			forged := w.forge(key)
			if how == "routed" {
				w.routed(2, w.checkpoints(), key, forged)
				w.routed(3, topicOf("order"), "o-1", "{}")
				w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(2)) // so the forged event is dealt with
			}
			c.stop()
			if how == "written" {
				w.routed(3, topicOf("order"), "o-1", "{}")
				record := &kgo.Record{Topic: w.checkpoints(), Key: []byte(key), Value: []byte(forged), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(eventID(2))}}}
				must.OK(t, w.broker.Client(t).ProduceSync(t.Context(), record).FirstErr())
			}
			w.routed(4, topicOf("order"), "o-1", "{}")
			w.exec(`SELECT pg_logical_emit_message(true, 'filler', repeat('x', 2000000))`)
			c = w.start()
			w.routed(5, topicOf("order"), "o-1", "{}")
			got := ids(w.broker.Consume(t, []string{topicOf("order")}, func(all []*kgo.Record) bool { return slices.Contains(ids(all), eventID(5)) }))
			if want := []string{eventID(1), eventID(3), eventID(4), eventID(5)}; !slices.Equal(got, want) {
				t.Errorf("lost: the topic has %v, want %v", got, want)
			}
			c.stop()
			if how == "routed" {
				letter := w.broker.Consume(t, []string{deadLetter}, kafkatest.Count(1))[0]
				if ids([]*kgo.Record{letter})[0] != eventID(2) || string(letter.Value) != forged {
					t.Errorf("the dead letter is %s", letter.Value)
				}
			}
		})
	}
}

// routed commits an event of the aggregate type.
func (w *world) routed(n int, aggregate, key, payload string) {
	w.t.Helper()
	_, err := w.sql.Exec(w.t.Context(), `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ($1, $2, $3, 'Placed', $4)`,
		eventID(n), aggregate, key, payload)
	must.OK(w.t, err)
}

// forge returns the connector's last checkpoint, of a later holder and at a position a
// megabyte ahead of the log.
func (w *world) forge(key string) string {
	w.t.Helper()
	last := w.broker.Consume(w.t, []string{w.checkpoints()}, func(all []*kgo.Record) bool {
		return len(all) > 0 && string(all[len(all)-1].Key) == key
	})
	var doc map[string]any
	must.OK(w.t, json.Unmarshal(last[len(last)-1].Value, &doc))
	var end string
	must.OK(w.t, w.sql.QueryRow(w.t.Context(), `SELECT (pg_current_wal_flush_lsn() + 1000000)::text`).Scan(&end))
	end = must.Get(pg.ParseLSN(end))(w.t).String()
	doc["lsn"], doc["landmark"] = end, map[string]any{"commit": end}
	doc["epoch"] = json.Number(fmt.Sprint(int64(1) << 60))
	return string(must.Get(json.Marshal(doc))(w.t))
}
