package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Failure mode 63: two connectors share a checkpoint.key. The second's slot holds
// events unknown to the first's checkpoint. The second connector ends before
// reading anything, as each verb does, and publishes all the events with a
// separate key.
func TestE2EOneKeyForTwoSlots(t *testing.T) {
	for name, how := range map[string]ways{"table": toTable, "messages": asMessages} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{ways: how, direct: true, unread: true, config: "checkpoint:\n  key: shared\n"})
			w.broker.CreateTopic(t, secondTopic, 1, nil)
			second := w.secondConfig()
			w.wantExit(0, second, "setup", "--set", "checkpoint.key=second")
			w.run("setup") // two connectors for one outbox are meant
			w.event(how, 1)
			first := w.start()
			w.event(how, 2)
			w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(1))
			first.stop()
			first = w.start()

			w.event(how, 3)
			w.wantNothingFromTheSecond(second)
			for _, verb := range []string{"check", "status", "setup", "setup --accept-gap --yes", "teardown --yes"} {
				must.Contain(t, w.wantExit(2, second, strings.Fields(verb)...), w.slot, w.slot+"_b", "checkpoint.key")
			}
			first.stop() // nobody has taken its slot or checkpoint away
			w.start().stop()

			text := must.Get(os.ReadFile(second))(t)
			must.OK(t, os.WriteFile(second, []byte(strings.Replace(string(text), "key: shared", "key: second", 1)), 0o600))
			c := startConnector(t, second)
			var got []string
			for _, r := range w.broker.Consume(t, []string{secondTopic}, kafkatest.Count(3)) {
				got = append(got, string(r.Value))
			}
			if strings.Join(got, " ") != "1 2 3" {
				t.Errorf("the second connector published %q", got)
			}
			c.stop()
		})
	}
}

const secondTopic = "second.order"

// secondConfig is a configuration with another slot and other topics.
func (w *world) secondConfig() (path string) {
	w.t.Helper()
	text := string(must.Get(os.ReadFile(w.config))(w.t))
	text = strings.Replace(text, "slot: "+w.slot, "slot: "+w.slot+"_b", 1) + "route:\n  topic: second.${routedByValue}\n"
	path = filepath.Join(w.t.TempDir(), "second.yaml")
	must.OK(w.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// event commits an event with payload n.
func (w *world) event(how ways, n int) {
	w.t.Helper()
	if how == asMessages {
		w.exec(fmt.Sprintf(`SELECT outbox_emit_text('order', 'o-1', 'Placed', '%d')`, n))
		return
	}
	w.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('%s', 'order', 'o-1', 'Placed', '%d')`, eventID(n), n))
}

// wantExit runs a command of the program to its end, wants the exit code, and
// returns the output.
func (w *world) wantExit(code int, config string, args ...string) (printed string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), binary, append(args, "-c", config)...)
	cmd.Env = environment(w.t)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		w.t.Errorf("cdc-outbox %v: exit code %d, want %d\n%s", args, got, code, out)
	}
	return string(out)
}

// wantNothingFromTheSecond wants the second connector to end with exit code 2
// before publishing anything.
func (w *world) wantNothingFromTheSecond(config string) {
	w.t.Helper()
	c := startConnector(w.t, config)
	ended := func() bool {
		select {
		case <-c.process.Exited():
			return true
		default:
			return false
		}
	}
	published := func() bool {
		ends := must.Get(w.admin.ListEndOffsets(w.t.Context(), secondTopic))(w.t)
		end, _ := ends.Lookup(secondTopic, 0)
		return end.Offset > 0
	}
	// The first connector may have saved its checkpoint behind all events so far.
	another := sync.OnceFunc(func() { w.event(w.ways, 4) })
	await.Until(w.t, "the end of the second connector, or an event", func() bool {
		if c.logged(w.started()) > 0 {
			another()
		}
		return ended() || published()
	})
	if !ended() {
		got := w.broker.Consume(w.t, []string{secondTopic}, kafkatest.Count(1))
		w.t.Fatalf("lost: the second connector believes the first one's checkpoint, and publishes event %s first", got[0].Value)
	}
	if code := c.wait(); code != 2 {
		w.t.Errorf("the second connector ends with exit code %d, want 2", code)
	}
	must.Contain(w.t, c.lastLines(1), `\"shared\"`, w.slot, w.slot+"_b", "checkpoint.key")
}
