package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// An operator's repair ends in the middle, by a lost terminal, PostgreSQL's or Kafka's
// end, or a full disk: a repetition publishes the rest. Two at once publish each event
// once. A wrong choice of rows is refused.
func TestE2ERepairInBadStates(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]options{"at_least_once": {unread: true}, "exactly_once": {unread: true, exactlyOnce: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, o)
			c := w.start()
			w.insertSeries(100)
			w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(100))
			c.stop()
			w.dropSlot(w.slot)
			rows := 100
			next := func() { // rows that are missing
				w.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) SELECT gen_random_uuid(), 'order', '1', 'Placed', n::text FROM generate_series(1, 12000) n`)
				rows += 12000
			}
			repair := func(args ...string) *connector {
				cmd := exec.Command(binary, append([]string{"repair", "--publish", "-c", w.config, "--timeout", "20s"}, args...)...)
				cmd.Env = environment(t)
				return launch(t, cmd)
			}
			inTheMiddle := func(c *connector, before int) {
				await.Until(t, "some of the missing events", func() bool {
					select {
					case <-c.process.Exited():
						return true
					default:
					}
					return w.records() > before
				})
			}
			said := func(c *connector) string { return string(must.Get(os.ReadFile(c.log))(t)) }

			next()
			a, b := repair(), repair()
			codes := []int{a.wait(), b.wait()}
			t.Logf("two at once: exit codes %v; %s%s", codes, said(a), said(b))
			if codes[0]+codes[1] != 0 && codes[0]+codes[1] != 2 {
				t.Errorf("two at once: exit codes %v", codes)
			}
			w.wantIDs(rows, true)

			next()
			before := w.records()
			c = repair()
			inTheMiddle(c, before)
			c.signal(syscall.SIGHUP)
			t.Logf("a lost terminal: exit code %d; %s", c.wait(), said(c))

			c = repair()
			before = w.records()
			inTheMiddle(c, before)
			w.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'cdc-outbox%' AND pid <> pg_backend_pid()`)
			code := c.wait()
			t.Logf("PostgreSQL ends the sessions: exit code %d; %s", code, said(c))
			if code != 0 && (code != 1 || !strings.Contains(said(c), "remedy")) {
				t.Errorf("exit code %d: %s", code, said(c))
			}

			for how, end := range map[string]func(testing.TB){"stopped": w.broker.Stop, "killed": w.broker.Kill} {
				next()
				before = w.records()
				c = repair()
				inTheMiddle(c, before)
				end(t)
				code = c.wait()
				w.broker.Resume(t)
				t.Logf("Kafka is %s: exit code %d; %s", how, code, said(c))
				if code != 0 && (code != 1 || !strings.Contains(said(c), "repeat the command")) {
					t.Errorf("exit code %d: %s", code, said(c))
				}
				w.repairsBehindKafka()
				w.wantIDs(rows, o.exactlyOnce)
			}

			next()
			full := exec.Command("sh", "-c", `ulimit -f 8; exec "$0" "$@"`, binary, "repair", "--publish", "-c", w.config, "--tmp", t.TempDir())
			full.Env = environment(t)
			out, _ := full.CombinedOutput()
			t.Logf("a full disk: exit code %d; %s", full.ProcessState.ExitCode(), out)
			if full.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "choose a directory with room") {
				t.Errorf("a full disk: exit code %d; %s", full.ProcessState.ExitCode(), out)
			}

			must.Contain(t, w.wantExit(0, w.config, "repair", "--publish"), " 0 unknown")
			w.wantIDs(rows, o.exactlyOnce)
			must.Contain(t, w.wantExit(2, w.config, "repair", "--id", eventID(999_999)), "no row has the id")
			must.Contain(t, w.wantExit(2, w.config, "repair", "--since", "1h", "--until", "2h"), "no row is from")
			must.Contain(t, w.wantExit(2, w.config, "repair", "--xid", "999999999"), "take the number from the header cdc-xid")
		})
	}
}

// repairsBehindKafka repeats a repair that Kafka's end has interrupted. Where nobody ends the
// transaction any more, as the started broker has skipped its end (failure mode 183), the
// repair names the command for the operator.
func (w *world) repairsBehindKafka() {
	w.t.Helper()
	said := w.attempt("repair", "--publish")
	if end := regexp.MustCompile(`cdc-outbox (txn abort .* --yes)`).FindStringSubmatch(said); end != nil {
		w.t.Logf("the broker has skipped the end of a transaction, and says so: %t; %s", w.broker.SkippedMarkers(w.t), said)
		cmd := exec.CommandContext(w.t.Context(), binary, strings.Fields(end[1])...)
		cmd.Env = environment(w.t)
		if out, err := cmd.CombinedOutput(); err != nil {
			w.t.Fatalf("%s: %v\n%s", end[1], err, out)
		}
		said = w.attempt("repair", "--publish")
	}
	must.Contain(w.t, said, " 0 unknown")
}

// records is the number of records in the topic of orders, with transactions' markers.
func (w *world) records() (n int) {
	w.t.Helper()
	for _, p := range must.Get(w.admin.ListEndOffsets(w.t.Context(), topicOf("order")))(w.t)[topicOf("order")] {
		n += int(p.Offset)
	}
	return n
}

// wantIDs wants so many events in the topic, each once or, not exactly, at least once.
func (w *world) wantIDs(events int, exactly bool) {
	w.t.Helper()
	seen, counted := map[string]bool{}, 0
	records := w.broker.Consume(w.t, []string{topicOf("order")}, func(all []*kgo.Record) bool {
		for _, r := range all[counted:] {
			seen[ids([]*kgo.Record{r})[0]] = true
		}
		counted = len(all)
		return len(seen) >= events
	})
	if exactly && len(records) != events {
		w.t.Errorf("%d records of %d events, want each once", len(records), events)
	}
	w.t.Logf("%d events, %d records", len(seen), len(records))
}
