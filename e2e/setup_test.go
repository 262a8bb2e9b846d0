package e2e

import (
	"path/filepath"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Failure mode 127. The checkpoint knows the slot from setup on: the first run
// notices changes of the slot since, with any store and delivery. An
// operator's corrections of the configuration until then are no loss.
func TestE2EBetweenSetupAndTheFirstRun(t *testing.T) {
	stores := map[string]string{
		"kafka":        "checkpoint:\n  store: kafka\n",
		"postgres":     "checkpoint:\n  store: postgres\n",
		"file":         "checkpoint:\n  store: file\n  path: ",
		"exactly once": "",
	}
	for name, section := range stores {
		start := func(t *testing.T) *world {
			more := section
			if name == "file" {
				more += filepath.Join(t.TempDir(), "checkpoint.json") + "\n"
			}
			return newWorld(t, options{direct: true, unread: true, exactlyOnce: name == "exactly once", config: more})
		}
		drop := func(w *world) { w.exec(`SELECT pg_drop_replication_slot('` + w.slot + `')`) }
		t.Run(name, func(t *testing.T) {
			t.Run("nothing happens", func(t *testing.T) {
				w := start(t)
				w.run("setup")
				w.run("setup")
				w.event(toTable, 1)
				c := w.start()
				w.event(toTable, 2)
				w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(2))
				c.stop()
				w.run("setup")
				c = w.start()
				w.event(toTable, 3)
				w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(3))
				c.stop()
			})
			t.Run("the slot is made anew", func(t *testing.T) {
				w := start(t)
				w.run("setup")
				drop(w)
				w.event(toTable, 1)
				w.exec(`SELECT pg_create_logical_replication_slot('` + w.slot + `', 'pgoutput')`)
				must.Contain(t, w.wantExit(3, w.config, "run"), "was advanced or recreated by somebody else")
				w.wantExit(3, w.config, "setup")
			})
			t.Run("the slot is dropped", func(t *testing.T) {
				w := start(t)
				w.run("setup")
				drop(w)
				w.event(toTable, 1)
				must.Contain(t, w.wantExit(3, w.config, "run"), "is gone, but was made by setup at")
				if _, ok := w.look(); ok {
					t.Error("a slot was made, which leaves out the event")
				}
			})
			t.Run("the table is corrected", func(t *testing.T) {
				w := start(t)
				w.rewriteConfig("source:\n", "source:\n  tables: [public.others]\n")
				w.run("setup")
				w.rewriteConfig("source:\n  tables: [public.others]\n", "source:\n")
				must.Contain(t, w.wantExit(2, w.config, "run"), "is not in publication")
				w.run("setup")
				c := w.start()
				w.event(toTable, 1)
				w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(1))
				c.stop()
			})
			t.Run("the publication is corrected", func(t *testing.T) {
				w := start(t)
				w.rewriteConfig("publication: "+w.slot, "publication: mistyped")
				w.run("setup")
				w.rewriteConfig("publication: mistyped", "publication: "+w.slot)
				for _, verb := range []string{"run", "setup", "check", "run"} {
					must.Contain(t, w.wantExit(2, w.config, verb), "mistyped")
				}
				w.run("teardown", "--yes")
				w.run("setup")
				c := w.start()
				w.event(toTable, 1)
				w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(1))
				c.stop()
			})
		})
	}
}
