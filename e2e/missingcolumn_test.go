package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

// Failure mode 58: a row written while the key column had another name. By
// default the connector stops before the row, also when the column has its name
// again; and each named remedy gets past the row and past nothing else.
func TestE2ERenamedKeyColumn(t *testing.T) {
	for _, policy := range []string{"stop", "dead_letter", "skip"} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t, options{direct: true, unread: true, config: "errors:\n  on_bad_event: stop\n"})
			c := w.start()
			w.insertID(1, "aggregateid")
			w.exec(`ALTER TABLE outbox RENAME aggregateid TO renamed`)
			w.insertID(2, "renamed")
			if code := c.wait(); code != 2 {
				t.Fatalf("exit code %d at the row of the renamed column, want 2", code)
			}
			w.exec(`ALTER TABLE outbox RENAME renamed TO aggregateid`)
			w.insertID(3, "aggregateid")
			c = startConnector(t, w.config)
			if code := c.wait(); code != 2 {
				t.Fatalf("exit code %d after the column was renamed back, want 2", code)
			}

			if policy == "stop" {
				w.typeRemedy(c.lastLines(2))
			} else {
				w.rewriteConfig("on_bad_event: stop", "on_bad_event: "+policy)
			}
			c = w.start()
			w.insertID(4, "aggregateid")
			got := ids(w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(3)))
			c.stop()
			if want := []string{eventID(1), eventID(3), eventID(4)}; !slices.Equal(got, want) {
				t.Errorf("the topic has %v, want %v", got, want)
			}
			switch policy {
			case "dead_letter":
				w.wantRawLetter()
			case "skip":
				if log := c.lastLines(100); !strings.Contains(log, eventID(2)) || !strings.Contains(log, "missing_column") {
					t.Errorf("the log does not name the event that was skipped:\n%s", log)
				}
			}
		})
	}
}

func eventID(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n) }

// insertID commits an event, with the key in the column.
func (w *world) insertID(n int, key string) {
	w.t.Helper()
	w.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, %s, type, payload) VALUES ('%s', 'order', 'o-1', 'Placed', '{"n":%d}')`, key, eventID(n), n))
}

func ids(records []*kgo.Record) (ids []string) {
	for _, r := range records {
		ids = append(ids, string(r.Headers[0].Value))
	}
	return ids
}

// typeRemedy types the printed command for passing over a transaction: as printed,
// without any change, and then with --yes.
func (w *world) typeRemedy(printed string) {
	w.t.Helper()
	found := regexp.MustCompile("`cdc-outbox (setup [^`]*--accept-gap --skip-to [^`]*)`").FindStringSubmatch(printed)
	if found == nil {
		w.t.Fatalf("no command in the remedy: %s", printed)
	}
	args := strings.Fields(found[1])
	for _, try := range []struct {
		args []string
		code int
	}{{args, 2}, {append(args, "--yes"), 0}, {append(args, "--yes"), 0}} { // a repetition does no harm
		cmd := exec.Command(binary, try.args...)
		cmd.Env = append(environment(w.t), "CDC_OUTBOX_CONFIG="+w.config)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != try.code {
			w.t.Fatalf("%v: %v\n%s", try.args, err, out)
		}
		if try.code == 0 && (!bytes.Contains(out, []byte(eventID(2))) || bytes.Contains(out, []byte(eventID(3)))) {
			w.t.Errorf("it does not say what is passed over:\n%s", out)
		}
		w.t.Logf("%v\n%s", try.args, out)
	}
}

// wantRawLetter wants the row of event 2 in the dead letters, with all of its
// columns.
func (w *world) wantRawLetter() {
	w.t.Helper()
	letter := w.broker.Consume(w.t, []string{deadLetter}, kafkatest.Count(1))[0]
	var row map[string]any
	if err := json.Unmarshal(letter.Value, &row); err != nil {
		w.t.Fatalf("%s: %v", letter.Value, err)
	}
	if row["id"] != eventID(2) || row["renamed"] != "o-1" || row["payload"] != `{"n":2}` || len(row) != 6 {
		w.t.Errorf("the dead letter has %s", letter.Value)
	}
	for _, h := range letter.Headers {
		if h.Key == "cdc-dlq-reason" && string(h.Value) != "missing_column" {
			w.t.Errorf("reason %s", h.Value)
		}
	}
}
