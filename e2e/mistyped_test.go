package e2e

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
)

// Failure mode 167. source.slot is mistyped while no instance runs: what was committed in
// the meantime is in the slot that was read before, and a new one would leave it there. No
// other slot is made, by the store's checkpoints; but a second connector may be meant.
func TestE2EAMistypedSlot(t *testing.T) {
	for name, o := range map[string]options{
		"kafka":        {config: "checkpoint:\n  store: kafka\n"},
		"postgres":     {config: "checkpoint:\n  store: postgres\n"},
		"exactly once": {exactlyOnce: true},
		"messages":     {ways: asMessages},
	} {
		t.Run(name, func(t *testing.T) {
			o.direct, o.unread = true, true
			w := newWorld(t, o)
			how := max(o.ways, toTable)
			w.broker.CreateTopic(t, secondTopic, 1, nil)
			w.event(how, 1)
			c := w.start()
			w.event(how, 2)
			w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(1))
			c.stop()
			w.event(how, 3)

			second := w.secondConfig()
			wrong := startConnector(t, second)
			if code := wrong.wait(); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			must.Contain(t, wrong.lastLines(1), "did you mean source.slot: "+w.slot, "cdc-outbox setup")
			must.Contain(t, w.wantExit(2, second, "check"), "did you mean source.slot: "+w.slot, "cdc-outbox setup")
			if n := w.count(`SELECT count(*) FROM pg_replication_slots WHERE slot_name = '` + w.slot + `_b'`); n != 0 {
				t.Error("a second slot was made")
			}
			c = w.start()
			w.event(how, 4)
			w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(3))

			w.wantExit(0, second, "setup")
			w.event(how, 5)
			b := startConnector(t, second)
			if got := string(w.broker.Consume(t, []string{secondTopic}, kafkatest.Count(1))[0].Value); got != "5" {
				t.Errorf("the second connector begins with event %s", got)
			}
			b.stop()
			c.stop()
		})
	}
}
