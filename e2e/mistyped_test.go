package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
)

// Failure mode 167. source.slot is mistyped while no instance runs: what was committed in
// the meantime is in the slot that was read before, and a new one would leave it there. No
// other slot is made, by the store's checkpoints or, where they are elsewhere, by the slot that nobody reads; but a second connector may be meant.
func TestE2EAMistypedSlot(t *testing.T) {
	file := func(name string) string {
		return "checkpoint:\n  store: file\n  path: " + filepath.Join(t.TempDir(), name) + "\n"
	}
	files := []string{file("a"), file("b")}
	for name, o := range map[string]struct {
		options
		second string // in place of config, in the mistaken one
	}{
		"kafka":         {options{config: "checkpoint:\n  store: kafka\n"}, ""},
		"postgres":      {options{config: "checkpoint:\n  store: postgres\n"}, ""},
		"exactly once":  {options{exactlyOnce: true}, ""},
		"messages":      {options{ways: asMessages}, ""},
		"other files":   {options{config: files[0]}, files[1]},
		"other stores":  {options{config: "checkpoint:\n  store: kafka\n"}, "checkpoint:\n  store: postgres\n"},
		"nowhere":       {options{config: "checkpoint:\n  store: none\n"}, ""},
		"messages only": {options{ways: asMessages, config: "checkpoint:\n  store: none\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o.direct, o.unread = true, true
			w := newWorld(t, o.options)
			how := max(o.ways, toTable)
			w.broker.CreateTopic(t, secondTopic, 1, nil)
			w.event(how, 1)
			c := w.start()
			w.event(how, 2)
			w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(1))
			c.stop()
			w.event(how, 3)

			second := w.secondConfig()
			if o.second != "" {
				text := string(must.Get(os.ReadFile(second))(t))
				must.OK(t, os.WriteFile(second, []byte(strings.Replace(text, o.config, o.second, 1)), 0o600))
			}
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
