package sink

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// askedAt returns n events with a requested time.
func askedAt(topic string, n int, at time.Time) []*transform.Event {
	evs := events(topic, n)
	for _, ev := range evs {
		ev.Asked = at
	}
	return evs
}

// A refusal for a time is not the event's fault: nothing is rejected, no batch is cut, and
// under exactly once a single transaction is aborted, not one for each record.
func TestATimeThatIsRefusedGivesWay(t *testing.T) {
	const n = 300
	ahead := time.Now().Add(2 * time.Hour).Truncate(time.Millisecond)
	refuse := func(c *cluster) *kfake.FaultHandle {
		return c.Fault(kfake.Fault{Keys: []kmsg.Key{produce}, Topic: "t", Err: kerr.InvalidTimestamp})
	}
	check := func(t *testing.T, c *cluster, evs []*transform.Event) {
		t.Helper()
		for _, r := range c.read(t, "t", 1)[0] {
			if string(r.Value) == "0" {
				continue
			}
			if r.Timestamp.After(time.Now().Add(time.Hour)) {
				t.Fatalf("record %s has the time %s", r.Value, r.Timestamp)
			}
			if last := r.Headers[len(r.Headers)-1]; last.Key != transform.HeaderAsked || string(last.Value) != ahead.UTC().Format("2006-01-02T15:04:05.000000Z") {
				t.Fatalf("last header %s: %s", last.Key, last.Value)
			}
		}
		for _, ev := range evs {
			if ev.Warning != transform.WarningTimeReplaced {
				t.Fatalf("event %s has the warning %q", ev.ID, ev.Warning)
			}
		}
	}
	t.Run("at least once", func(t *testing.T) {
		c := startCluster(t, kfake.SeedTopics(1, "t"))
		k, _ := newKafka(t, c.config())
		evs := askedAt("t", n, ahead)
		evs[0].Asked = time.Time{}
		deliver(t, k, evs[:1]) // the first of a topic goes alone
		evs = evs[1:]
		h := refuse(c)
		deliver(t, k, evs)
		if h.Hits() != 1 {
			t.Errorf("%d refusals", h.Hits())
		}
		ascending(t, c.values(t, "t", 1), n)
		check(t, c, evs)
	})
	t.Run("exactly once", func(t *testing.T) {
		c := startCluster(t, kfake.SeedTopics(1, "t", marks))
		var observer told
		x := must.Get(NewTransactions(c.config(), "tx", WithTransactionObserver(&observer)))(t)
		t.Cleanup(x.Close)
		must.OK(t, x.Claim(deadline(t)))
		evs := askedAt("t", n, ahead)
		refuse(c)
		refused, err := x.Transact(deadline(t), entriesOf(evs), mark("1"))
		if err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
		aborted := 0
		for _, line := range observer {
			if line == "aborted" {
				aborted++
			}
		}
		if aborted != 1 {
			t.Errorf("%d transactions were aborted", aborted)
		}
		if got := len(c.committed(t, "t")); got != n {
			t.Errorf("%d events are committed", got)
		}
	})
}

// If brokers refuse the time of this machine, a clock is wrong, here or there. The
// sink waits, and tells the observer.
func TestAClockThatIsWrongIsWaitedFor(t *testing.T) {
	for _, delivery := range []string{"at least once", "exactly once"} {
		t.Run(delivery, func(t *testing.T) {
			c := startCluster(t, kfake.SeedTopics(1, "t", marks))
			w := newWitness()
			tell := WithObserver(w)
			c.Fault(kfake.Fault{Keys: []kmsg.Key{produce}, Topic: "t", Err: kerr.InvalidTimestamp, Count: 3})
			evs := events("t", 20)
			if delivery == "at least once" {
				k, _ := newKafka(t, c.config(), tell)
				deliver(t, k, evs)
			} else {
				x := must.Get(NewTransactions(c.config(), "tx", tell))(t)
				t.Cleanup(x.Close)
				must.OK(t, x.Claim(deadline(t)))
				if refused, err := x.Transact(deadline(t), entriesOf(evs), mark("1")); err != nil || len(refused) > 0 {
					t.Fatal(refused, err)
				}
			}
			if len(w.reasons) != 4 || w.reasons[3] != "" || !strings.Contains(w.reasons[0], `"t"`) || !strings.Contains(w.reasons[0], "message.timestamp") {
				t.Errorf("told of %q", w.reasons)
			}
			if !strings.Contains(w.remedies[0], "clock") || !strings.Contains(w.remedies[0], "kafka-configs.sh") {
				t.Errorf("remedy %q", w.remedies[0])
			}
		})
	}
}

// On Apache Kafka: an event older than half of the retention, or too far in the
// past or in the future for a topic, arrives and stays; any other keeps its
// time.
func TestTimesOnApacheKafka(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Apache(), kafkatest.Setting("log.retention.check.interval.ms", "1000"))
	b.CreateTopic(t, "short", 1, map[string]string{"retention.ms": "60000", "segment.ms": "1000"})
	b.CreateTopic(t, "appended", 1, map[string]string{"retention.ms": "60000", "message.timestamp.type": "LogAppendTime"})
	b.CreateTopic(t, "bounded", 1, map[string]string{"message.timestamp.before.max.ms": "60000"})
	b.CreateTopic(t, "usual", 1, nil)
	cfg := *DefaultOptions()
	cfg.Brokers = b.Brokers
	k, _ := newKafka(t, cfg)
	now := time.Now().Truncate(time.Millisecond)
	for _, tc := range []struct {
		topic string
		ago   time.Duration
		kept  bool
	}{
		{"short", 75 * time.Second, false},
		{"short", 10 * time.Second, true},
		{"appended", 75 * time.Second, true},
		{"bounded", 2 * time.Minute, false},
		{"usual", -2 * time.Hour, false},
		{"usual", time.Hour, true},
	} {
		ev := event(tc.topic, "a", 0, 1)
		ev.Asked = now.Add(-tc.ago)
		deliver(t, k, []*transform.Event{ev})
		if kept := !ev.Asked.IsZero(); kept != tc.kept {
			t.Errorf("%s, %s ago: kept its time: %t, want %t", tc.topic, tc.ago, kept, tc.kept)
		}
	}
	// Brokers look at retention each second, and wait a second between two segments.
	got := b.Consume(t, []string{"short", "appended", "bounded", "usual"}, kafkatest.Count(6))
	if len(got) != 6 {
		t.Errorf("%d records", len(got))
	}
}
