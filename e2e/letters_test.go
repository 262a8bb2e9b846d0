package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// The connector's own dead letters: listed and shown while it runs, refused again while
// the cause lasts, redriven beside it after that, once.
func TestE2EDeadLettersAreRedriven(t *testing.T) {
	for name, o := range map[string]options{"at_least_once": {unread: true}, "exactly_once": {unread: true, exactlyOnce: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, o.refusing(50_000))
			c := w.start()
			large := strings.Repeat("x", 100_000)
			insert := func(n int, key, payload string) {
				w.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('%s', 'order', '%s', 'Placed', '%s')`, eventID(n), key, payload))
			}
			insert(1, "k", "first")
			insert(2, "k", large)
			insert(3, "", "without a key")
			insert(4, "k", "last")
			w.broker.Consume(t, []string{deadLetter}, kafkatest.Count(2))
			w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(2))

			letters := func(code int, words string, args ...string) {
				t.Helper()
				if said := w.wantExit(code, w.config, append([]string{"dead-letters"}, args...)...); !strings.Contains(said, words) {
					t.Errorf("dead-letters %v says %s, want %s", args, said, words)
				}
			}
			letters(0, "2 letters: 1 null_key, 1 record_too_large", "list")
			letters(0, "0 letters", "list", "--table", "public.another")
			letters(0, "value, 100000 bytes:", "show", "--partition", "0", "--offset", w.offsetOf(eventID(2)))
			letters(2, "refused", "redrive", "--all", "--publish")
			if said := w.wantExit(0, w.config, "verify"); !strings.Contains(said, "4 rows, 4 of them in Kafka") {
				t.Errorf("verify says %s", said)
			}

			limit := "1000000"
			set := kadm.AlterConfig{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &limit}
			for _, r := range must.Get(w.admin.AlterTopicConfigs(context.Background(), []kadm.AlterConfig{set}, topicOf("order")))(t) {
				must.OK(t, r.Err)
			}
			letters(0, "1 to publish", "redrive", "--reason", "record_too_large")
			letters(0, "published 1", "redrive", "--reason", "record_too_large", "--publish")
			letters(0, "1 redriven before, 0 refused, 0 waiting, 0 uncertain, 0 to publish", "redrive", "--reason", "record_too_large", "--publish")
			var got []string
			for _, rec := range w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(3)) {
				got = append(got, fmt.Sprint(string(rec.Value[:4]), " ", len(rec.Value)))
			}
			if want := "firs 5,last 4,xxxx 100000"; strings.Join(got, ",") != want {
				t.Errorf("published %v, want %s", got, want)
			}
			c.stop()
		})
	}
}

// offsetOf is that of the letter with the id.
func (w *world) offsetOf(id string) string {
	w.t.Helper()
	for _, rec := range w.broker.Consume(w.t, []string{deadLetter}, kafkatest.Count(2)) {
		for _, h := range rec.Headers {
			if h.Key == "cdc-dlq-id" && string(h.Value) == id {
				return fmt.Sprint(rec.Offset)
			}
		}
	}
	w.t.Fatalf("no letter of %s", id)
	return ""
}
