package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// parkingWorld is a world in which a row with bad JSON parks its key.
func parkingWorld(t *testing.T, o options) *world {
	t.Helper()
	o.unread, o.config = true, "errors:\n  on_bad_event: quarantine\n"+o.config
	w := newWorld(t, o)
	w.set("event:\n", "event:\n  payload_format: json_expanded\n")
	return w
}

// set replaces text of the configuration, and returns the configuration before.
func (w *world) set(from, to string) (before string) {
	w.t.Helper()
	before = string(must.Get(os.ReadFile(w.config))(w.t))
	after := strings.Replace(before, from, to, 1)
	if after == before {
		w.t.Fatalf("%q is not in\n%s", from, before)
	}
	must.OK(w.t, os.WriteFile(w.config, []byte(after), 0o600))
	return before
}

// TestE2EQuarantineOutOfUse changes settings while a key is parked (failure mode 195): nothing
// is published that would pass the parked events.
func TestE2EQuarantineOutOfUse(t *testing.T) {
	for name, o := range map[string]options{"at_least_once": {}, "exactly_once": {exactlyOnce: true}} {
		t.Run(name, func(t *testing.T) {
			w := parkingWorld(t, o)
			c := w.start()
			w.place("a", `{bad`)
			w.place("a", `{"n":1}`)
			await.Until(t, "parked events", func() bool { c.running(); return w.parked().Events == 2 })
			c.stop()
			w.place("a", `{"n":2}`)
			const policy = "on_bad_event: quarantine"
			for name, change := range map[string]struct{ from, to, why string }{
				"another policy": {policy, "on_bad_event: stop", "errors.on_bad_event is stop now"},
				"another topic":  {policy, policy + "\n  quarantine_topic: elsewhere", "errors.quarantine_topic leads to topic"},
				"another route":  {"event:\n", "route:\n  topic: outbox.event.payment\nevent:\n", "have changed since"},
			} {
				before := w.set(change.from, change.to)
				must.Contain(t, w.wantExit(2, w.config, "run"), change.why, "later events of their keys would pass them", "settle the events")
				must.Contain(t, w.wantExit(2, w.config, "check"), change.why)
				if t.Failed() {
					t.Fatal(name)
				}
				must.OK(t, os.WriteFile(w.config, []byte(before), 0o600))
			}
			c = w.start()
			must.Contain(t, w.wantExit(0, w.config, "quarantine", "release", "--all", "--yes"), "left out 1")
			await.Until(t, "the end of the quarantine", func() bool { c.running(); return w.parked().Events == 0 })
			c.stop()
			w.set(policy, "on_bad_event: stop") // nothing is parked any more
			c = w.start()
			w.place("a", `{"n":3}`)
			if got, want := w.valuesUpTo(`{"n":3}`), []string{`{"n":1}`, `{"n":2}`, `{"n":3}`}; !slices.Equal(got, want) {
				t.Errorf("arrived %q, want %q", got, want)
			}
			c.stop()
		})
	}
}

// TestE2EQuarantineIsNotPassed has a replay leave out events of a parked key, until the key
// flows (failure mode 196).
func TestE2EQuarantineIsNotPassed(t *testing.T) {
	for name, o := range map[string]options{"at_least_once": {}, "exactly_once": {exactlyOnce: true}} {
		t.Run(name, func(t *testing.T) {
			w := parkingWorld(t, o)
			c := w.start()
			w.place("a", `{"n":1}`)
			w.place("b", `{"n":2}`)
			w.place("a", `{bad`)
			await.Until(t, "parked events", func() bool { c.running(); return w.parked().Events == 1 })
			replay := []string{"replay", "--name", "again", "--key", "a", "--key", "b"}
			must.Contain(t, w.wantExit(0, w.config, replay...), "1 keys are in the quarantine")
			replay = append(replay, "--set", "errors.on_bad_event=skip", "--publish") // the row itself is bad
			must.Contain(t, w.wantExit(2, w.config, replay...), `2 events were not published`, `topic "outbox.event.order", key "a"`, "repeat the command")
			must.Contain(t, w.wantExit(0, w.config, "quarantine", "skip", "--all", "--yes"), "left out 1")
			w.wantExit(0, w.config, replay...)
			w.place("a", `{"n":3}`)
			w.place("b", `{"n":4}`)
			got := w.valuesUpTo(`{"n":3}`, `{"n":4}`)
			if want := []string{`{"n":1}`, `{"n":1}`, `{"n":2}`, `{"n":2}`, `{"n":3}`, `{"n":4}`}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("arrived %s", fmt.Sprint(got))
			}
			c.stop()
		})
	}
}
