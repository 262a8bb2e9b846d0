package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Failure mode 217. source.slot or checkpoint.key is changed while a key is parked, or an
// accepted gap is noted: no checkpoint under the new name knows. Nothing begins, before a
// slot is made, until both are settled under the former name.
func TestE2EQuarantineUnderAnotherName(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		return "checkpoint:\n  store: file\n  path: " + filepath.Join(dir, name) + "\n"
	}
	for name, o := range map[string]struct {
		options
		second string // in place of config, under another name
	}{
		"kafka":        {options{config: "checkpoint:\n  store: kafka\n"}, ""},
		"postgres":     {options{config: "checkpoint:\n  store: postgres\n"}, ""},
		"file":         {options{config: file("a")}, file("b")},
		"exactly once": {options{exactlyOnce: true, config: "checkpoint:\n  store: kafka\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := parkingWorld(t, o.options)
			if o.second == "" {
				o.second = o.config
			}
			park := func() {
				c := w.start()
				w.place("a", `{bad`)
				await.Until(t, "a parked event", func() bool { c.running(); return w.parked().Events == 1 })
				c.stop()
			}
			park()
			wantRefused := func(said string, verbs ...string) {
				t.Helper()
				for _, verb := range verbs {
					must.Contain(t, w.wantExit(2, w.config, verb), said, "source.slot: "+w.slot+" and checkpoint.key: ")
				}
				if n := w.count(`SELECT count(*) FROM pg_replication_slots WHERE slot_name = '` + w.slot + `_b'`); n != 0 {
					t.Error("a second slot was made")
				}
			}
			newKey, newSlot := o.second+"  key: another\n", "slot: "+w.slot+"_b"

			before := w.set(o.config, newKey)
			wantRefused("1 events are parked in topic", "run", "adopt", "check")
			must.OK(t, os.WriteFile(w.config, []byte(before), 0o600))

			w.set("slot: "+w.slot, newSlot)
			if o.second != o.config {
				w.set(o.config, o.second)
			}
			must.Contain(t, w.wantExit(2, w.config, "run"), "did you mean source.slot: "+w.slot)
			wantRefused("1 events are parked in topic", "setup")
			must.OK(t, os.WriteFile(w.config, []byte(before), 0o600))

			w.dropSlot(w.slot)
			w.set("slot: "+w.slot, newSlot)
			if o.second != o.config {
				w.set(o.config, o.second)
			}
			wantRefused("1 events are parked in topic", "run", "setup", "check")
			renamed := string(must.Get(os.ReadFile(w.config))(t))
			must.OK(t, os.WriteFile(w.config, []byte(before), 0o600))

			w.wantExit(0, w.config, "setup", "--accept-gap", "--yes")
			c := w.start()
			w.wantExit(0, w.config, "quarantine", "release", "--all", "--yes")
			await.Until(t, "the end of the quarantine", func() bool { c.running(); return w.parked().Events == 0 })
			c.stop()
			w.dropSlot(w.slot)
			must.OK(t, os.WriteFile(w.config, []byte(renamed), 0o600))
			wantRefused("a gap was accepted at", "run", "setup", "check")
			must.OK(t, os.WriteFile(w.config, []byte(before), 0o600))

			w.wantExit(0, w.config, "setup", "--accept-gap", "--yes")
			c = w.start()
			w.wantExit(0, w.config, "repair", "--give-up", "--yes")
			c.stop()
			w.dropSlot(w.slot)
			must.OK(t, os.WriteFile(w.config, []byte(renamed), 0o600))
			w.wantExit(0, w.config, "setup")
			c = startConnector(t, w.config)
			c.awaitLog(w.started())
			w.place("a", `{"n":3}`)
			w.valuesUpTo(`{"n":3}`)
			c.stop()
		})
	}
}
