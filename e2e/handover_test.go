package e2e

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// The slot goes from Debezium, which is killed, to the connector, and back, while writers go
// on: nothing is lost, what comes again was counted before, and the order in each key stays.
func TestE2EHandOverFromDebeziumAndBack(t *testing.T) {
	m := startMoving(t, nil)
	m.awaitDebezium()
	w := m.startWriters(3, 10*time.Millisecond, seed(t))
	await.Until(t, "events", func() bool {
		return w.count() > 500 && m.ask(`SELECT (confirmed_flush_lsn > restart_lsn)::int FROM pg_replication_slots WHERE slot_name = '`+debeziumSlot+`'`) == 1
	})
	await.Until(t, "records of Debezium's", func() bool { return m.published() > 0 })
	m.killDebezium()
	await.Until(t, "the slot to be free", func() bool {
		return m.ask(`SELECT active::int FROM pg_replication_slots WHERE slot_name = '`+debeziumSlot+`'`) == 0
	})
	must.Contain(t, m.run(2, "adopt", "-c", m.config, "--from", m.path("connector.properties")), "are in Kafka already", "nothing was changed")
	var adopted struct {
		Repeated struct {
			Events  int64
			InKafka int64 `json:"in_kafka"`
			Ahead   int64
			Whole   bool
		}
	}
	out := m.run(0, "adopt", "-c", m.config, "--from", m.path("connector.properties"), "--yes", "--json")
	must.OK(t, json.Unmarshal([]byte(out), &adopted))
	t.Logf("%+v", adopted)
	c, _ := m.start("run", "-c", m.config)
	before := w.count()
	await.Until(t, "events for the connector", func() bool { c.running(); return w.count() > before+500 })
	m.run(0, "wait", "-c", m.config)
	c.stop()
	left := m.ask(confirmed)
	before = w.count()
	await.Until(t, "events for nobody", func() bool { return w.count() > before+100 })
	m.startDebezium()
	m.awaitDebezium()
	await.Until(t, "events for Debezium", func() bool { return w.count() > before+500 })
	w.stop()
	await.Until(t, "the last events", func() bool { return m.missing(w) == 0 })

	seen := map[string]int{}
	order := map[string][]string{}
	for _, r := range m.records() {
		id, _ := transform.Header(r.Headers, transform.HeaderID)
		if seen[string(id)]++; seen[string(id)] == 1 {
			key := r.Topic + " " + string(r.Key)
			order[key] = append(order[key], string(id))
		}
	}
	want := map[string][]string{}
	repeated := int64(0)
	for _, ev := range w.committed {
		key := ev.topic + " " + ev.key
		want[key] = append(want[key], ev.id)
		repeated += int64(max(0, seen[ev.id]-1))
	}
	t.Logf("%d events, %d records come again", len(w.committed), repeated)
	if len(seen) != len(w.committed) {
		t.Errorf("%d events in Kafka, %d committed", len(seen), len(w.committed))
	}
	if repeated != adopted.Repeated.InKafka || !adopted.Repeated.Whole {
		t.Errorf("%d records come again, %d were announced", repeated, adopted.Repeated.InKafka)
	}
	for key, ids := range want {
		if !slices.Equal(order[key], ids) {
			t.Errorf("key %s: %d events in another order, or of %d", key, len(order[key]), len(ids))
		}
	}
	await.Until(t, "a position that Debezium has confirmed", func() bool { return m.ask(confirmed) > left })
	m.wantDecision()
}

// confirmed asks for the slot's confirmed position.
const confirmed = `SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots WHERE slot_name = '` + debeziumSlot + `'`

// The connector wants a decision, as another program has moved the slot.
func (m *moving) wantDecision() {
	m.t.Helper()
	m.killDebezium()
	await.Until(m.t, "the slot to be free", func() bool {
		return m.ask(`SELECT active::int FROM pg_replication_slots WHERE slot_name = '`+debeziumSlot+`'`) == 0
	})
	m.run(3, "run", "-c", m.config)
	m.run(0, "setup", "-c", m.config, "--accept-gap", "--yes")
}

// published is the number of records.
func (m *moving) published() int { return len(m.records()) }

// missing is the number of committed events without a record.
func (m *moving) missing(w *traffic) (n int) {
	seen := map[string]bool{}
	for _, r := range m.records() {
		id, _ := transform.Header(r.Headers, transform.HeaderID)
		seen[string(id)] = true
	}
	for _, ev := range w.committed {
		if !seen[ev.id] {
			n++
		}
	}
	return n
}
