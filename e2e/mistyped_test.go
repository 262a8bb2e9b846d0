package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Failure mode 167. source.slot is mistyped while no instance runs: events
// committed in the meantime are in the former slot, and a new slot would leave
// them there. No other slot is made: the store's checkpoints tell or, where they
// are elsewhere, the slot without a reader. But a second connector may be meant.
func TestE2EAMistypedSlot(t *testing.T) {
	file := func(name string) string {
		return "checkpoint:\n  store: file\n  path: " + filepath.Join(t.TempDir(), name) + "\n"
	}
	files := []string{file("a"), file("b")}
	for name, o := range map[string]struct {
		options
		second string // in place of config, in the mistaken configuration
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

// A second connector, of another table, starts while the first is stopped. The
// store says: the first connector's slot has no events of the second.
func TestE2EASlotOfAnotherTable(t *testing.T) {
	w := newWorld(t, options{config: "checkpoint:\n  store: postgres\n", direct: true, unread: true})
	w.start().stop()
	w.exec(`CREATE TABLE invoices (LIKE outbox INCLUDING ALL)`, `CREATE PUBLICATION invoices FOR TABLE invoices`)
	text := string(must.Get(os.ReadFile(w.config))(t))
	text = strings.NewReplacer("slot: "+w.slot, "slot: "+w.slot+"_b\n  tables: [public.invoices]", "publication: "+w.slot, "publication: invoices").Replace(text)
	second := filepath.Join(t.TempDir(), "second.yaml")
	must.OK(t, os.WriteFile(second, []byte(text), 0o600))
	c := startConnector(t, second)
	c.awaitLog(w.started())
	c.stop()
}
