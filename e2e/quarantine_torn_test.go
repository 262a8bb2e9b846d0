package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
)

// quarantineTopic is that of the world's connector.
func (w *world) quarantineTopic() string {
	return store.Topic("cdc-outbox.quarantine", strings.TrimPrefix(w.transactionalID(), "cdc-outbox/"))
}

// TestE2EQuarantineReleaseEndedByHalves has brokers commit a part of the Kafka transaction of a
// retry, and abort the rest (failure mode 197). The events of the key come once, in order.
func TestE2EQuarantineReleaseEndedByHalves(t *testing.T) {
	events := func(_ *world, topic string) bool { return topic == topicOf("order") }
	for name, committed := range map[string]func(w *world, topic string) bool{
		"the_events":         events,
		"all_but_the_events": func(w *world, topic string) bool { return !events(w, topic) },
		"the_checkpoint":     func(w *world, topic string) bool { return topic == w.checkpoints() },
	} {
		for _, version := range []int16{1, 2} {
			t.Run(fmt.Sprintf("%s_with_version_%d", name, version), func(t *testing.T) {
				t.Parallel()
				o := options{exactlyOnce: true, unread: true}
				w := newWorld(t, o.parking(50_000))
				w.broker.SetFeature(t, "transaction.version", version)
				con := w.start()
				large := strings.Repeat("x", 60_000)
				w.place("a", large)
				for n := range 3 {
					w.place("a", fmt.Sprint(n))
				}
				await.Until(t, "parked events", func() bool { con.running(); return w.parked().Events == 4 })
				w.fitting(fit)
				answer := make(chan string)
				go func() { answer <- w.attempt("quarantine", "retry", "--all", "--yes", "--timeout", "2m") }()
				goOn := w.holdEnd(con)
				for w.transaction().Topics[topicOf("order")] == nil {
					goOn()
					goOn = w.holdEnd(con)
				}
				w.broker.EndHalf(t, w.transactionalID(), version, func(topic string, _ int32) bool { return committed(w, topic) })
				con.kill()
				w.endTxn.part(true, w.kafka.Addr()) // nothing held back arrives
				goOn()
				w.endTxn.part(false, w.kafka.Addr())
				con = startConnector(t, w.config)
				t.Log(<-answer)
				w.attempt("quarantine", "retry", "--all", "--yes")
				await.Until(t, "the end of the quarantine", func() bool { con.running(); return w.parked().Events == 0 })
				w.place("a", "the last")
				got := w.valuesUpTo("the last")
				if want := []string{large, "0", "1", "2", "the last"}; !slices.Equal(got, want) {
					for i := range got {
						got[i] = got[i][:min(10, len(got[i]))]
					}
					t.Errorf("arrived %q", got)
				}
				con.stop()
			})
		}
	}
}

// valuesUpTo reads the orders that consumers see, until each of the values has come: the
// last of a partition says nothing about the others.
func (w *world) valuesUpTo(last ...string) (values []string) {
	w.t.Helper()
	reader := w.broker.Client(w.t, kgo.ConsumeTopics(topicOf("order")), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer reader.Close()
	await.Until(w.t, strings.Join(last, ", "), func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), 100*time.Millisecond)
		defer cancel()
		reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
		return !slices.ContainsFunc(last, func(v string) bool { return !slices.Contains(values, v) })
	})
	return values
}
