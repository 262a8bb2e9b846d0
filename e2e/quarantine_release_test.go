package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// TestE2EQuarantineReleaseDisturbed releases a key with thousands of events, by two operators at
// a time, while the instance is stopped or killed and a spare takes over, or brokers are gone
// (failure mode 186). The events come in order, and once with exactly once.
func TestE2EQuarantineReleaseDisturbed(t *testing.T) {
	t.Parallel()
	events := 10_000
	if testing.Short() {
		events = 3_000
	}
	for delivery, o := range map[string]options{"at_least_once": {}, "exactly_once": {exactlyOnce: true}} {
		for name, disturb := range map[string]func(w *world, c, spare *connector) *connector{
			"a_stop": func(_ *world, c, spare *connector) *connector { c.stop(); return spare },
			"a_kill": func(_ *world, c, spare *connector) *connector { c.kill(); return spare },
			"no_brokers": func(w *world, c, spare *connector) *connector {
				w.kafka.Refuse(true)
				w.kafka.Cut()
				c.awaitMore("will retry")
				w.kafka.Refuse(false)
				spare.end(syscall.SIGKILL)
				return c
			},
		} {
			t.Run(delivery+"_"+name, func(t *testing.T) {
				o.unread = true
				w := newWorld(t, o.parking(50_000))
				c := w.start()
				w.place("a", strings.Repeat("x", 60_000))
				w.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) SELECT gen_random_uuid(), 'order', 'a', 'Placed', n FROM generate_series(1, %d) n`, events))
				await.Until(t, "parked events", func() bool { c.running(); return w.parked().Events == events+1 })
				t.Logf("peak memory with %d events parked: %d KiB", events+1, c.peakRSS()>>10)
				w.fitting(fit)
				spare := startConnector(t, w.config)
				spare.awaitLog("standing by")
				began := time.Now()
				answers := make(chan string, 2)
				for range cap(answers) {
					go func() { answers <- w.attempt("quarantine", "retry", "--all", "--yes", "--timeout", "3m") }()
				}
				await.Until(t, "a part of the release", func() bool { c.running(); return w.recordsOf(topicOf("order")) > 500 })
				c = disturb(w, c, spare)
				for range cap(answers) {
					t.Logf("after %s: %s", time.Since(began), <-answers)
				}
				await.Until(t, "the end of the quarantine", func() bool {
					c.running()
					if l := w.parked(); l.Events > 0 && len(l.Waiting) == 0 {
						w.attempt("quarantine", "retry", "--all", "--yes", "--timeout", "3m")
					}
					return w.parked().Events == 0
				})
				t.Logf("released within %s, peak memory %d KiB", time.Since(began), c.peakRSS()>>10)
				w.place("a", "the last")
				w.wantInOrder(w.valuesUpTo("the last"), events, o.exactlyOnce)
				c.stop()
			})
		}
	}
}

// wantInOrder wants the first event, the numbers up to last, and then "the last". Without once,
// a part may come again, in order.
func (w *world) wantInOrder(values []string, last int, once bool) {
	w.t.Helper()
	highest := 0
	for i, value := range values[:len(values)-1] {
		n, _ := strconv.Atoi(value) // 0: the first
		if n > highest+1 || once && i > 0 && n != highest+1 {
			w.t.Fatalf("event %d comes behind event %d", n, highest)
		}
		highest = max(highest, n)
	}
	if highest != last || len(values[0]) != 60_000 {
		w.t.Errorf("the last event is %d, want %d", highest, last)
	}
	w.t.Logf("%d records of %d events", len(values), last+2)
}

// recordsOf is the sum of the ends of a topic's partitions.
func (w *world) recordsOf(topic string) (sum int64) {
	must.Get(w.admin.ListEndOffsets(w.t.Context(), topic))(w.t).Each(func(o kadm.ListedOffset) { sum += o.Offset })
	return sum
}

// TestE2EQuarantineRights names each missing right to the topic, with the command that gives it.
func TestE2EQuarantineRights(t *testing.T) {
	o := options{unread: true, broker: []kafkatest.Option{kafkatest.Logins("cdc", "reader")}, config: "errors:\n  on_bad_event: quarantine\n"}
	o.kafka = "sasl: {mechanism: PLAIN, username: cdc, password: " + kafkatest.Password + "}"
	w := newWorld(t, o)
	prefix := func(name string) *kadm.ACLBuilder {
		return kadm.NewACLs().Topics(name).ResourcePatternType(kadm.ACLPatternPrefixed)
	}
	w.broker.Allow(t, "cdc", prefix("outbox."), kadm.OpAll)
	w.broker.Allow(t, "cdc", prefix("cdc-outbox.checkpoints"), kadm.OpAll)
	w.broker.Allow(t, "cdc", kadm.NewACLs().Clusters(), kadm.OpIdempotentWrite)
	must.Contain(t, w.wantExit(2, w.config, "run"), "kafka-acls.sh", "--operation Write", w.quarantineTopic())
	must.Contain(t, w.wantExit(2, w.config, "check"), w.quarantineTopic(), "kafka-acls.sh")
	w.broker.Allow(t, "cdc", prefix("cdc-outbox.quarantine"), kadm.OpAll)
	w.set("event:\n", "event:\n  payload_format: json_expanded\n")
	c := w.start()
	w.place("a", `{bad`)
	await.Until(t, "parked events", func() bool { c.running(); return w.parked().Events == 1 })
	w.broker.Allow(t, "reader", prefix("cdc-outbox.quarantine"), kadm.OpRead)
	w.broker.Allow(t, "reader", kadm.NewACLs().Clusters(), kadm.OpIdempotentWrite)
	w.set("username: cdc", "username: reader")
	must.Contain(t, w.wantExit(0, w.config, "quarantine", "list"), "1 keys parked")
	must.Contain(t, w.wantExit(2, w.config, "quarantine", "skip", "--all", "--yes"), "kafka-acls.sh", "--add", "--operation Write", w.quarantineTopic())
	c.stop()
}
