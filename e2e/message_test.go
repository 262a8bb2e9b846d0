package e2e

import (
	"testing"
)

// ways are how events are written.
type ways uint8

const (
	toTable ways = 1 << iota
	asMessages
)

// TestE2EMessageMode repeats other tests in message mode, without a table and
// beside a table: transactions write rows and messages in turn, roll them back to
// savepoints or as a whole.
func TestE2EMessageMode(t *testing.T) {
	for name, how := range map[string]ways{"alone": asMessages, "beside_a_table": toTable | asMessages} {
		for scenario, run := range map[string]func(*testing.T, ways){
			"every_event_once": everyEventOnce,
			"killed":           killed,
			"connections_cut":  connectionsCut,
		} {
			t.Run(name+"/"+scenario, func(t *testing.T) {
				t.Parallel()
				run(t, how)
			})
		}
	}
}

// config is the configuration file's form of the ways.
func (s ways) config() string {
	switch s {
	case asMessages:
		return "  mode: message"
	case asMessages | toTable:
		return "  mode: message\n  tables: [public.outbox]\nevent:\n  additional: [\"note:header\"]"
	}
	return "event:\n  additional: [\"note:header\"]"
}

// setUpMessages has the program create the function for messages.
func (w *world) setUpMessages() {
	w.t.Helper()
	if w.ways&asMessages == 0 {
		return
	}
	w.run("setup")
}

// statement writes the event of the six values.
func (w *writer) statement() string {
	if w.ways&asMessages != 0 && (w.ways&toTable == 0 || w.random.IntN(2) == 0) {
		return "SELECT outbox_emit_text(aggregate_type => $2, aggregate_id => $3, type => $4, payload => $5, " +
			"headers => jsonb_build_object('note', $6::text), id => $1)"
	}
	return "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, note) VALUES ($1, $2, $3, $4, $5, $6)"
}
