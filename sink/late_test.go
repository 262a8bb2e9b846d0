package sink

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// begun counts the transactions that begin.
type begun struct {
	unobserved
	n atomic.Int64
}

func (b *begun) TransactionOpen(since time.Time) {
	if !since.IsZero() {
		b.n.Add(1)
	}
}

// A transaction begins while the markers of the last cannot be written, as the coordinator
// does not reach the leader of a partition. Brokers answer CONCURRENT_TRANSACTIONS until the
// markers are written. Another instance that starts meanwhile misses nothing. kfake writes
// markers at once, so the brokers are Apache Kafka's.
func TestE2ETransactBehindLateMarkers(t *testing.T) {
	c := kafkatest.StartCluster(t, []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"})
	cfg := *DefaultOptions()
	cfg.Brokers = c.Brokers
	var transactions begun
	x := must.Get(NewTransactions(cfg, "tx", WithTransactionObserver(&transactions)))(t)
	t.Cleanup(x.Close)
	must.OK(t, x.Claim(deadline(t)))
	coordinator := c.Coordinator(t, "tx")
	lone := (coordinator + 1) % 3
	for topic, broker := range map[string]int{"t": coordinator, "lone": lone, marks: (coordinator + 2) % 3} {
		createOn(t, c, topic, int32(broker))
	}
	commit := func(text string) error {
		var evs []*transform.Event
		for i, topic := range []string{"t", "lone"} {
			ev := event(topic, "a", 0, i)
			ev.Record.Value = []byte(text)
			evs = append(evs, ev)
		}
		_, err := x.Transact(deadline(t), entriesOf(evs), mark(text))
		return err
	}
	for _, text := range []string{"0", "1"} { // then the sink knows that epochs differ
		must.OK(t, commit(text))
	}

	c.Consume(t, []string{"lone"}, kafkatest.Count(2)) // their markers are written
	c.Part(lone, true)
	defer c.Part(lone, false)
	must.OK(t, commit("2"))
	if !busy(t, x, "lone") {
		t.Fatal("the markers are not late")
	}
	for name, ends := range map[string]checkpoint.Ends{"the mark": endsMarked(t, c.Client(t)), "the sink": x.Ends()} {
		if compared := CompareEnds(deadline(t), c.Client(t), ends); len(compared.Lost) > 0 || compared.Untold != nil || len(ends) != 2 {
			t.Errorf("a start now, with the ends %v of %s, takes %v for lost, and %v for untold", ends, name, compared.Lost, compared.Untold)
		}
	}
	before := transactions.n.Load()
	committed := make(chan error, 1)
	go func() { committed <- commit("3") }()
	await.Until(t, "the next transaction begins", func() bool { return transactions.n.Load() > before })
	c.Part(lone, false)
	must.OK(t, <-committed)
	must.OK(t, commit("4"))
	for _, topic := range []string{"t", "lone", marks} {
		records := c.Consume(t, []string{topic}, kafkatest.Count(5))
		for n, r := range records {
			if string(r.Value) != string(rune('0'+n)) {
				t.Errorf("record %d of %s is %q", n, topic, r.Value)
			}
		}
	}
}

// Brokers abort a transaction that is open for too long, even if only prepared.
// No record may follow in the aborted transaction.
func TestE2EPreparedTransactionThatTimesOut(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Apache(), kafkatest.Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", "200"))
	b.CreateTopic(t, "t", 2, nil)
	b.CreateTopic(t, marks, 1, nil)
	claim := func() *Transactions {
		cfg := *DefaultOptions()
		cfg.Brokers = b.Brokers
		x := must.Get(NewTransactions(cfg, "tx"))(t)
		t.Cleanup(x.Close)
		must.OK(t, x.Claim(deadline(t)))
		return x
	}
	x := claim()
	for _, text := range []string{"0", "1", "2"} {
		transact(t, x, text, 0, 1)
	}
	prepare(t, x)
	admin := kadm.NewClient(b.Client(t))
	state := func() string { return must.Get(admin.DescribeTransactions(deadline(t), "tx"))(t)["tx"].State }
	if got := state(); got != "Ongoing" {
		t.Fatalf("the transaction is %s, want it to be prepared", got)
	}
	await.Until(t, "brokers abort the transaction", func() bool { return state() == "CompleteAbort" })
	if _, err := x.Transact(deadline(t), entriesOf([]*transform.Event{event("t", "a", 0, 0)}), mark("lost")); !errors.Is(err, ErrFenced) {
		t.Errorf("got %v, want ErrFenced", err)
	}
	transact(t, claim(), "3", 0, 1)
	for n, r := range b.Consume(t, []string{marks}, kafkatest.Count(4)) {
		if string(r.Value) != string(rune('0'+n)) {
			t.Errorf("mark %d is %q", n, r.Value)
		}
	}
}

// createOn creates a topic of one partition with one replica.
func createOn(t *testing.T, c *kafkatest.Cluster, name string, broker int32) {
	t.Helper()
	client := c.Client(t)
	testserver.Do(t, "create topic "+name, func(ctx context.Context) error {
		req := kmsg.NewPtrCreateTopicsRequest()
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
		assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		assignment.Replicas = []int32{broker}
		one := "1"
		setting := kmsg.NewCreateTopicsRequestTopicConfig()
		setting.Name, setting.Value = "min.insync.replicas", &one
		topic.ReplicaAssignment, topic.Configs = append(topic.ReplicaAssignment, assignment), append(topic.Configs, setting)
		req.Topics = append(req.Topics, topic)
		resp, err := req.RequestWith(ctx, client)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		return err
	})
}

// busy reports whether the coordinator still waits for the last transaction's markers.
func busy(t *testing.T, x *Transactions, topic string) bool {
	t.Helper()
	id, epoch, err := x.k.client.ProducerID(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return errors.Is(broker.Enlist(deadline(t), x.k.client, x.id, id, epoch, map[string][]int32{topic: {0}}), kerr.ConcurrentTransactions)
}
