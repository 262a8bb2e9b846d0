package consumer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

// seen is a handler remembering all ids seen.
type seen struct {
	mu  sync.Mutex
	ids map[string]int
}

func newSeen() *seen { return &seen{ids: map[string]int{}} }

func (s *seen) handle(_ context.Context, r *kgo.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[string(r.Value)]++
	return nil
}

func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ids)
}

// generation returns n records of a topic's life.
func generation(name string, n int) []*kgo.Record {
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = record(0, "k", fmt.Sprintf("%s%d", name, i))
	}
	return records
}

// recreate deletes the topic orders, and creates the topic again once gone.
func recreate(t *testing.T, b *kafkatest.Broker) {
	t.Helper()
	remove(t, b, "orders")
	b.CreateTopic(t, "orders", 1, nil)
}

func remove(t *testing.T, b *kafkatest.Broker, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	admin := kadm.NewClient(b.Client(t, kgo.MetadataMinAge(10*time.Millisecond)))
	if _, err := admin.DeleteTopic(ctx, topic); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the end of the topic", func() bool {
		topics, err := admin.ListTopics(ctx)
		return err == nil && !topics.Has(topic)
	})
}

// A topic deleted and created again under a running consumer is another topic:
// the same Run consumes it from the beginning.
func TestATopicCreatedAnewIsConsumedFromItsBeginning(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"while idle": false, "while busy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := kafkatest.Start(t)
			b.CreateTopic(t, "orders", 1, nil)
			produce(t, b, generation("old", 50)...)
			s := newSeen()
			cfg := config(b, newLedger(), s.handle)
			lines := keepLog(&cfg)
			hold := make(chan struct{})
			if busy {
				cfg.Handler = func(ctx context.Context, r *kgo.Record) error {
					if string(r.Value) == "old49" {
						<-hold
					}
					return s.handle(ctx, r)
				}
			}
			m := start(t, cfg)
			await.Until(t, "the old records", func() bool { return s.count() >= 49 })
			recreate(t, b)
			produce(t, b, generation("new", 100)...)
			close(hold)
			await.Until(t, "the new records", func() bool { return s.count() == 150 })
			eventuallyCommitted(t, kadm.NewClient(b.Client(t)), 1, 100)
			m.stop(t)
			if n := lines.count("created again"); n == 0 || lines.count("") > 50 {
				t.Errorf("%d of %d lines tell of it", n, lines.count(""))
			}
		})
	}
}

// A missing topic holds up neither a stop nor the log, and is waited for.
func TestATopicThatIsGone(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	produce(t, b, generation("old", 50)...)
	s := newSeen()
	cfg := config(b, newLedger(), s.handle)
	cfg.CommitInterval = time.Hour // the last commit is the stop's
	lines := keepLog(&cfg)
	m := start(t, cfg)
	await.Until(t, "the old records", func() bool { return s.count() == 50 })
	remove(t, b, "orders")
	await.Until(t, "a word about it", func() bool { return lines.count("is gone") > 0 })
	m.stop(t)
	if n := lines.count(""); n > 20 {
		t.Errorf("%d lines: %v", n, lines)
	}
}

// A commit after the topic's re-creation is still the old topic's: a starting
// consumer does not believe it.
func TestAnOffsetOfTheTopicBefore(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	produce(t, b, generation("old", 50)...)
	s, l := newSeen(), newLedger()
	m := start(t, config(b, l, s.handle))
	admin := kadm.NewClient(b.Client(t))
	eventuallyCommitted(t, admin, 1, 50)
	m.stop(t)
	old, err := admin.FetchOffsets(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	recreate(t, b)
	// Kafka up to 4.3 takes an offset by the topic's name.
	late := kadm.Offsets{}
	old.Each(func(o kadm.OffsetResponse) { o.TopicID = kadm.TopicID{}; late.Add(o.Offset) })
	await.Until(t, "the late commit", func() bool {
		return kadm.NewClient(b.Client(t)).CommitAllOffsets(t.Context(), group, late) == nil
	})
	produce(t, b, generation("new", 100)...)
	start(t, config(b, l, s.handle))
	await.Until(t, "the new records", func() bool { return s.count() == 150 })
}

// A group beginning at the end of a topic passes over existing records, and over
// no later record: neither in a new partition nor during the group's absence.
func TestBeginningAtTheEndPassesOverNothingNew(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 2, nil)
	produce(t, b, record(0, "k", "before"))
	s, l := newSeen(), newLedger()
	cfg := config(b, l, s.handle)
	cfg.Options = append(cfg.Options, kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.MetadataMaxAge(100*time.Millisecond))
	admin := kadm.NewClient(b.Client(t))
	m := start(t, cfg)
	eventuallyCommitted(t, admin, 1, 1)
	m.stop(t)
	produce(t, b, record(1, "k", "while away"))
	if _, err := admin.UpdatePartitions(t.Context(), 3, "orders"); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the new partition", func() bool {
		topics, err := kadm.NewClient(b.Client(t)).ListTopics(t.Context(), "orders")
		return err == nil && len(topics["orders"].Partitions) == 3
	})
	produce(t, b, record(2, "k", "in a new partition"))
	start(t, cfg)
	await.Until(t, "what came later", func() bool { return s.count() == 2 })
	if s.ids["before"] > 0 {
		t.Error("what was there before the group is handled")
	}
}

// The end of a transaction is no record, and nothing left to do: neither behind
// the last record nor behind everything aborted.
func TestTheEndOfATransactionIsNoLag(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	producer := b.Client(t, kgo.TransactionalID("orders"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryAbort, kgo.TryAbort} {
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := producer.ProduceSync(ctx, generation(fmt.Sprintf("%d-", i), 20)...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := producer.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	s := newSeen()
	cfg := config(b, newLedger(), s.handle)
	cfg.MaxBufferedRecords = 1
	m := start(t, cfg)
	eventuallyCommitted(t, kadm.NewClient(b.Client(t)), 1, 84)
	m.stop(t)
	if s.count() != 20 {
		t.Errorf("%d records were handled: %v", s.count(), s.ids)
	}
}
