package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// parking has topics refuse events with payloads over the limit, whose keys are parked.
func (o options) parking(limit int) options {
	o = o.refusing(limit)
	o.config = "errors:\n  on_bad_event: quarantine\n  quarantine_limit: 1000000\n"
	return o
}

// The largest batches of the topics: big payloads do not fit, or do.
const (
	unfit = "50000"
	fit   = "1000000"
)

// TestE2EQuarantine parks keys under load, while instances are killed and others take over,
// and while their keys are released (failure mode 186). Every event arrives, in the order of
// its key.
func TestE2EQuarantine(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]options{"at_least_once": {}, "exactly_once": {exactlyOnce: true}} {
		t.Run(name, func(t *testing.T) { quarantined(t, o.parking(50_000)) })
	}
}

func quarantined(t *testing.T, o options) {
	kills := 6
	if testing.Short() {
		kills = 2
	}
	w := newWorld(t, o)
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 500))
	c := w.start()
	load := w.write(s, 5*time.Millisecond, 0)
	most := 0
	for n := range kills {
		await.Until(t, "parked events", func() bool { c.running(); return w.parked().Events > 0 })
		load.await(100 + random.IntN(500))
		spare := startConnector(t, w.config)
		spare.awaitLog("standing by")
		most = max(most, w.parked().Events)
		if n%2 == 0 { // a takeover with events parked
			w.kill(c)
			c = spare
			continue
		}
		w.fitting(fit)
		done := make(chan string)
		go func() { done <- w.attempt("quarantine", "retry", "--all", "--yes", "--timeout", "2m") }()
		load.await(random.IntN(100))
		c.kill()
		c = spare
		t.Logf("retry beside a kill: %s", <-done)
		w.fitting(unfit)
	}
	load.await(200)
	load.stop()
	w.fitting(fit)
	await.Until(t, "the end of the quarantine", func() bool {
		c.running()
		w.attempt("quarantine", "retry", "--all", "--yes")
		return w.parked().Events == 0
	})
	w.arrived()
	c.stop()
	w.settle()
	h := checker.History{Transactions: w.ledger.Transactions(), Records: w.reader.Records()} // a parked event is confirmed before it arrives
	report := checker.Verify(h)
	t.Log(report)
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if o.exactlyOnce {
		w.wantNoneAgain(report, "to consumers that read what is committed")
	}
	if t.Logf("at most %d events were parked", most); most == 0 {
		t.Error("nothing was parked")
	}
	w.wantDrained(h)
}

// fitting sets the largest batch of the topics.
func (w *world) fitting(bytes string) {
	w.t.Helper()
	for _, aggregate := range aggregates {
		set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &bytes}}
		for _, r := range must.Get(w.admin.AlterTopicConfigs(w.t.Context(), set, topicOf(aggregate)))(w.t) {
			must.OK(w.t, r.Err)
		}
	}
}

// parkedList is the answer of quarantine list --json.
type parkedList struct {
	Events, Keys int
	Listed       []listedKey
	Waiting      []any `json:"waiting_commands"`
}

type listedKey struct {
	Number      uint64
	Key, Reason string
	Events      int
	Retry       bool
}

// parked is what is in the quarantine.
func (w *world) parked() (l parkedList) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), binary, "quarantine", "list", "--json", "-c", w.config)
	cmd.Env = environment(w.t)
	must.OK(w.t, json.Unmarshal(must.Get(cmd.Output())(w.t), &l))
	return l
}

// attempt runs a command of the program to its end, whatever that is.
func (w *world) attempt(args ...string) string {
	cmd := exec.CommandContext(w.t.Context(), binary, append(args, "-c", w.config)...)
	cmd.Env = environment(w.t)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	return string(out)
}

// TestE2EQuarantineCommands works through a quarantine, as operators do (failure mode 187).
func TestE2EQuarantineCommands(t *testing.T) {
	for name, o := range map[string]options{"at_least_once": {}, "exactly_once": {exactlyOnce: true}} {
		t.Run(name, func(t *testing.T) {
			o.unread, o.config = true, "errors:\n  on_bad_event: quarantine\n  quarantine_limit: 9\n"
			w := newWorld(t, o)
			text := string(must.Get(os.ReadFile(w.config))(t))
			must.OK(t, os.WriteFile(w.config, []byte(strings.Replace(text, "event:\n", "event:\n  payload_format: json_expanded\n", 1)), 0o600))
			commanded(t, w)
		})
	}
}

func commanded(t *testing.T, w *world) {
	insert := func(key, payload string) {
		w.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', %s, 'Placed', '%s')`, key, payload))
	}
	reader := w.broker.Client(t, kgo.ConsumeTopics(topicOf("order")), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	var got []string
	arrives := func(want ...string) {
		t.Helper()
		got = nil
		await.Until(t, fmt.Sprint(want), func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Key)+string(r.Value)) })
			return len(got) >= len(want)
		})
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("arrived %q, want %q", got, want)
		}
	}
	c := w.start()
	insert("'a'", `{"n":1}`)
	insert("'a'", `{bad`)     // 0
	insert("NULL", `{"n":2}`) // 1: alone
	insert("'a'", `{"n":3}`)
	insert("'b'", `{bad`) // 2
	insert("'b'", `{"n":4}`)
	insert("'b'", `{bad too`)
	insert("'b'", `{"n":5}`)
	insert("'c'", `{"n":6}`)
	arrives(`a{"n":1}`, `c{"n":6}`)
	var l parkedList
	await.Until(t, "parked events", func() bool { l = w.parked(); return l.Events == 7 })
	var a, none, b string
	for _, k := range l.Listed {
		number := fmt.Sprint(k.Number)
		switch {
		case k.Reason == "null_key":
			none = number
		case k.Key == "a":
			a = number
		default:
			b = number
		}
	}
	if l.Keys != 3 || a == "" || b == "" || none == "" {
		t.Fatalf("%+v", l)
	}
	must.Contain(t, w.wantExit(0, w.config, "verify"), "0 missing")
	must.Contain(t, w.wantExit(0, w.config, "quarantine", "show", "--event", b), "invalid_json", "{bad", `key       b`)
	must.Contain(t, w.wantExit(2, w.config, "quarantine", "retry", "--event", "5", "--yes"), "no event 5 is parked")
	must.Contain(t, w.wantExit(2, w.config, "quarantine", "retry", "--event", a, "--yes"), "could not become a record", "quarantine edit")
	must.Contain(t, w.wantExit(2, w.config, "quarantine", "edit", "--event", none, "--header", "x=y", "--yes"), "has no key", "--key")
	must.Contain(t, w.wantExit(2, w.config, "quarantine", "edit", "--event", a, "--topic", "nosuch", "--null-value", "--yes"), "nosuch")
	must.Contain(t, w.wantExit(0, w.config, "quarantine", "skip", "--event", b), "nothing was done", "--yes")
	value := filepath.Join(t.TempDir(), "value")
	must.OK(t, os.WriteFile(value, []byte(`{"n":"fixed"}`), 0o600))
	must.Contain(t, w.wantExit(0, w.config, "quarantine", "edit", "--event", a, "--value-file", value, "--yes"), "published 2 events")
	arrives(`a{"n":"fixed"}`, `a{"n":3}`)
	insert("'a'", `{"n":7}`)
	arrives(`a{"n":7}`)
	w.wantExit(2, w.config, "quarantine", "edit", "--event", a, "--value-file", value, "--yes") // a second operator

	// The next bad event of the key waits for its own command.
	must.Contain(t, w.wantExit(2, w.config, "quarantine", "skip", "--event", b, "--yes"), "published 1 events, left out 1", "it is bad, too (invalid_json)")
	arrives(`b{"n":4}`)
	insert("'b'", `{"n":8}`)
	await.Until(t, "an event behind", func() bool { return w.parked().Events == 4 })

	// At the limit the pipeline stops. A command is carried out by the next start.
	for range 6 {
		insert("'d'", `{bad`)
	}
	if code := c.wait(); code != 2 {
		t.Errorf("exit code %d at the limit", code)
	}
	must.Contain(t, w.wantExit(1, w.config, "quarantine", "release", "--all", "--timeout", "2s", "--yes"), "no active instance", "stays in topic")
	if l := w.parked(); len(l.Waiting) != 1 || l.Events != 9 {
		t.Errorf("%+v", l)
	}
	must.Contain(t, w.wantExit(0, w.config, "check"), "3 keys are parked, with 9 events of at most 9")
	c = startConnector(t, w.config)
	arrives(`b{"n":5}`, `b{"n":8}`)
	await.Until(t, "the last bad event, parked after the others were released", func() bool { l := w.parked(); return l.Events == 1 && len(l.Waiting) == 0 })
	c.stop()
}

// place writes an event of an order.
func (w *world) place(key, payload string) {
	w.t.Helper()
	w.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', '%s', 'Placed', '%s')`, key, payload))
}

// TestE2EQuarantineAfterAKill kills an instance with a parked key before its checkpoint: an
// event from before the bad one comes again, and must not become the last of the key (failure
// mode 186).
func TestE2EQuarantineAfterAKill(t *testing.T) {
	w := newWorld(t, options{unread: true, config: "errors:\n  on_bad_event: quarantine\ncheckpoint:\n  interval: 1m\n"})
	text := string(must.Get(os.ReadFile(w.config))(t))
	must.OK(t, os.WriteFile(w.config, []byte(strings.Replace(text, "event:\n", "event:\n  payload_format: json_expanded\n", 1)), 0o600))
	reader := w.broker.Client(t, kgo.ConsumeTopics(topicOf("order")))
	var got []string
	arrives := func(want string) {
		t.Helper()
		await.Until(t, want, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Key)+string(r.Value)) })
			return slices.Contains(got, want)
		})
	}
	c := w.start()
	w.place("a", `{"n":1}`)
	w.place("a", `{bad`)
	w.place("a", `{"n":3}`)
	await.Until(t, "parked events", func() bool { return w.parked().Events == 2 })
	c.kill()
	c = startConnector(t, w.config)
	w.place("b", `{"n":4}`)
	arrives(`b{"n":4}`)
	l := w.parked()
	if l.Events != 2 || l.Keys != 1 {
		t.Fatalf("%+v", l)
	}
	must.Contain(t, w.wantExit(0, w.config, "quarantine", "skip", "--all", "--yes"), "published 1 events, left out 1")
	arrives(`a{"n":3}`)
	c.kill() // the checkpoint is behind what was settled
	c = startConnector(t, w.config)
	w.place("b", `{"n":5}`)
	arrives(`b{"n":5}`)
	if l := w.parked(); l.Events != 0 {
		t.Errorf("%+v", l)
	}
	var of []string
	for _, record := range got {
		if strings.HasPrefix(record, "a") {
			of = append(of, record)
		}
	}
	if want := []string{`a{"n":1}`, `a{"n":1}`, `a{"n":3}`}; !slices.Equal(of, want) {
		t.Errorf("arrived %q, want %q", of, want)
	}
	c.stop()
}

// TestE2EQuarantineRefusedTwice works through a key with a second event that Kafka refuses
// (failure mode 187).
func TestE2EQuarantineRefusedTwice(t *testing.T) {
	for name, o := range map[string]options{"at_least_once": {}, "exactly_once": {exactlyOnce: true}} {
		t.Run(name, func(t *testing.T) {
			o.unread = true
			w := newWorld(t, o.parking(50_000))
			c := w.start()
			large := strings.Repeat("x", 60_000)
			w.place("a", large)
			w.place("a", large)
			w.place("b", large)
			await.Until(t, "parked events", func() bool { return w.parked().Events == 3 })
			a := fmt.Sprint(w.parked().Listed[0].Number)
			must.Contain(t, w.wantExit(2, w.config, "quarantine", "skip", "--event", a, "--yes"), "published 0 events, left out 1", "Kafka does not take it")
			l := w.parked()
			if l.Events != 2 || l.Keys != 2 {
				t.Fatalf("%+v", l)
			}
			b := l.Listed[slices.IndexFunc(l.Listed, func(k listedKey) bool { return k.Key == "b" })].Number
			must.Contain(t, w.wantExit(0, w.config, "quarantine", "skip", "--event", fmt.Sprint(b), "--yes"), "published 0 events, left out 1")
			must.Contain(t, w.wantExit(0, w.config, "quarantine", "release", "--all", "--yes"), "published 0 events, left out 1")
			c.stop()
		})
	}
}
