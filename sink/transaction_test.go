package sink

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

const marks = "marks"

// startTransactions returns a cluster with the topics t, dead and marks, and a
// transactor after the claim.
func startTransactions(t *testing.T, partitions int32) (*cluster, *Transactions) {
	t.Helper()
	c := startCluster(t)
	c.createTopic(t, "t", partitions)
	c.createTopic(t, "dead", 1)
	c.createTopic(t, marks, 1)
	return c, c.transactions(t)
}

func (c *cluster) transactions(t *testing.T) *Transactions {
	t.Helper()
	x := must.Get(NewTransactions(c.config(), "tx", WithDeadLetterTopic("dead")))(t)
	t.Cleanup(x.Close)
	must.OK(t, x.Claim(deadline(t)))
	return x
}

func entriesOf(events []*transform.Event) []Entry {
	entries := make([]Entry, len(events))
	for i, ev := range events {
		entries[i].Event = ev
	}
	return entries
}

func mark(text string) *kgo.Record {
	return &kgo.Record{Topic: marks, Key: []byte("p"), Value: []byte(text)}
}

// transact writes an event to each of the partitions, and the mark.
func transact(t *testing.T, x *Transactions, text string, partitions ...int32) {
	t.Helper()
	var evs []*transform.Event
	for i, p := range partitions {
		evs = append(evs, event("t", "a", p, i))
	}
	refused, err := x.Transact(deadline(t), entriesOf(evs), mark(text))
	if err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
}

// committed are the values for consumers who read only committed records.
func (c *cluster) committed(t *testing.T, topic string) (values []string) {
	t.Helper()
	ctx := deadline(t)
	left := map[int32]int64{}
	must.Get(c.admin(t).ListEndOffsets(ctx, topic))(t).Each(func(end kadm.ListedOffset) { left[end.Partition] = end.Offset })
	cl := c.client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	for len(left) > 0 {
		for p, end := range left {
			if end == 0 {
				delete(left, p)
			}
		}
		if len(left) == 0 {
			break
		}
		fetches := cl.PollFetches(ctx)
		must.OK(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 == left[r.Partition] {
				delete(left, r.Partition)
			}
			if !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
		})
	}
	return values
}

func (c *cluster) wantCommitted(t *testing.T, topic string, want ...string) {
	t.Helper()
	if got := c.committed(t, topic); !slices.Equal(got, want) {
		t.Errorf("committed in %s: %v, want %v", topic, got, want)
	}
}

func TestTransactionHasEventsAndMark(t *testing.T) {
	c, x := startTransactions(t, 1)
	for n := range 3 {
		evs := []*transform.Event{event("t", "a", transform.PartitionByKey, 2*n), event("t", "b", transform.PartitionByKey, 2*n+1)}
		refused, err := x.Transact(deadline(t), entriesOf(evs), mark(strconv.Itoa(n)))
		if err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
		for i, ev := range evs {
			if ev.Record.Partition != 0 || ev.Record.Offset != int64(3*n+i) { // the marker takes an offset, too
				t.Errorf("event %s is at %d@%d", ev.ID, ev.Record.Partition, ev.Record.Offset)
			}
		}
	}
	c.wantCommitted(t, "t", "0", "1", "2", "3", "4", "5")
	c.wantCommitted(t, marks, "0", "1", "2")
}

// unopened is Await's argument where no transaction is prepared.
func unopened() error { return errors.New("there is no transaction to end") }

// A checkpoint is saved while the next events wait for their topics.
func TestTransactBesideAwait(t *testing.T) {
	c, x := startTransactions(t, 1)
	var evs []*transform.Event
	for n := range 20 {
		evs = append(evs, event("late-"+strconv.Itoa(n), "a", transform.PartitionByKey, n))
	}
	awaited := make(chan error, 1)
	go func() { awaited <- x.Await(deadline(t), entriesOf(evs), unopened) }()
	var want []string
	for n, ev := range evs {
		refused, err := x.Transact(deadline(t), nil, mark(strconv.Itoa(n)))
		if err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
		want = append(want, strconv.Itoa(n))
		c.createTopic(t, ev.Record.Topic, 1)
	}
	must.OK(t, <-awaited)
	if _, err := x.Transact(deadline(t), entriesOf(evs), mark("events")); err != nil {
		t.Fatal(err)
	}
	c.wantCommitted(t, marks, append(want, "events")...)
}

// Failure mode 30: the refused record is found, nothing of the transaction
// counts, and the whole is written with the dead letter.
func TestRefusedRecordAbortsItsTransaction(t *testing.T) {
	c, x := startTransactions(t, 1)
	const n, bad = 40, 23
	evs := make([]*transform.Event, n)
	var want []string
	for i := range evs {
		evs[i] = event("t", "a", transform.PartitionByKey, i)
		if i != bad {
			want = append(want, strconv.Itoa(i))
		}
	}
	evs[bad].Record.Value = []byte("poison")
	c.refuse(1, "t", []byte("poison"), kerr.InvalidRecord)

	entries := entriesOf(evs)
	refused, err := x.Transact(deadline(t), entries, mark("1"))
	if err != nil || len(refused) != 1 || refused[0].Index != bad || refused[0].Bad.Reason != transform.ReasonRejectedByBroker {
		t.Fatalf("refused %v, %v, want entry %d", refused, err, bad)
	}
	c.wantCommitted(t, "t")
	c.wantCommitted(t, marks)
	entries[bad].Bad = refused[0].Bad
	if refused, err = x.Transact(deadline(t), entries, mark("2")); err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
	c.wantCommitted(t, "t", want...)
	c.wantCommitted(t, "dead", "poison")
	c.wantCommitted(t, marks, "2")
}

func TestBatchThatIsTooLargeAsAWholeIsSplit(t *testing.T) {
	c, x := startTransactions(t, 1)
	var calls atomic.Int64
	c.Fault(kfake.Fault{Keys: []kmsg.Key{produce}, Topic: "t", Err: kerr.MessageTooLarge, Count: -1, When: func(req kmsg.Request) bool {
		for _, topic := range req.(*kmsg.ProduceRequest).Topics {
			for _, p := range topic.Partitions {
				if topic.Topic != marks && len(p.Records) > 1000 {
					calls.Add(1)
					return true
				}
			}
		}
		return false
	}})
	evs := events("t", 300)
	if refused, err := x.Transact(deadline(t), entriesOf(evs), mark("1")); err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
	var want []string
	for i := range evs {
		want = append(want, strconv.Itoa(i))
	}
	c.wantCommitted(t, "t", want...)
	c.wantCommitted(t, marks, "1")

	first := calls.Load()
	if refused, err := x.Transact(deadline(t), entriesOf(events("t", 300)), mark("2")); err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
	if again := calls.Load() - first; first == 0 || again >= first {
		t.Errorf("%d batches were too large, then %d of the next transaction: what was learnt is forgotten", first, again)
	}
}

// Failure modes 35 and 42: the newer transactor has the id. The older never claims
// the id again.
func TestFencedTransactorStopsForGood(t *testing.T) {
	c, old := startTransactions(t, 1)
	if _, err := old.Transact(deadline(t), entriesOf(events("t", 1)), mark("1")); err != nil {
		t.Fatal(err)
	}
	fresh := c.transactions(t)
	for range 2 {
		_, err := old.Transact(deadline(t), entriesOf(events("t", 3)), mark("2"))
		if !errors.Is(err, ErrFenced) || failure.ClassOf(err) != failure.Transient {
			t.Fatalf("Transact after another claim = %v, want ErrFenced", err)
		}
	}
	if _, err := fresh.Transact(deadline(t), entriesOf([]*transform.Event{event("t", "a", 0, 9)}), mark("3")); err != nil {
		t.Fatalf("the one that has the id: %v", err)
	}
	c.wantCommitted(t, "t", "0", "9")
	c.wantCommitted(t, marks, "1", "3")
}

// Brokers abort a transaction after the timeout, and answer as to a fenced
// producer. The message then blames nobody else, but the quota, if any.
func TestTransactionThatTakesTooLongBlamesTheQuota(t *testing.T) {
	for _, throttled := range []bool{false, true} {
		c, x := startTransactions(t, 1)
		if _, err := x.Transact(deadline(t), entriesOf(events("t", 1)), mark("1")); err != nil {
			t.Fatal(err)
		}
		c.transactions(t) // claims the id, as brokers do to abort a transaction
		x.timeout = 0     // over at once
		c.Fault(kfake.Fault{Keys: []kmsg.Key{produce}, Observe: true, When: func(kmsg.Request) bool {
			if throttled {
				x.k.connections.OnBrokerThrottle(kgo.BrokerMetadata{NodeID: 1}, 1500*time.Millisecond, true)
			}
			return true
		}})
		_, err := x.Transact(deadline(t), entriesOf(events("t", 3)), mark("2"))
		if !errors.Is(err, ErrFenced) || !errors.Is(err, ErrUnsettled) || !strings.Contains(err.Error(), "and brokers abort it after 0s") ||
			strings.Contains(err.Error(), "producer") {
			t.Errorf("throttled %t: %v", throttled, err)
		}
		if quota := strings.Contains(failure.RemedyOf(err), "raise the quota"); quota != throttled || quota != strings.Contains(err.Error(), "a quota made the connector wait for") {
			t.Errorf("throttled %t: %v, remedy %q", throttled, err, failure.RemedyOf(err))
		}
	}
}

// Failure mode 35: an error of EndTxn is neither a commit nor an abort.
func TestEndTxnThatFailsIsUnsettled(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.UnknownServerError, kerr.InvalidTxnState, kerr.ProducerFenced, kerr.TransactionAbortable} {
		t.Run(refusal.Message, func(t *testing.T) {
			c, x := startTransactions(t, 1)
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: refusal})
			_, err := x.Transact(deadline(t), entriesOf(events("t", 3)), mark("1"))
			if !errors.Is(err, ErrUnsettled) {
				t.Errorf("Transact = %v, want ErrUnsettled", err)
			}
		})
	}
}

// The brokers' answer while the markers of the last transaction are on their way,
// also after a transaction left open by another instance.
func TestConcurrentTransactionsIsAskedAgain(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.InitProducerID, kmsg.Produce, kmsg.EndTxn} {
		t.Run(key.Name(), func(t *testing.T) {
			c := startCluster(t)
			c.createTopic(t, "t", 1)
			c.createTopic(t, marks, 1)
			refusals := c.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.ConcurrentTransactions, Count: 3})
			x := c.transactions(t)
			if refused, err := x.Transact(deadline(t), entriesOf(events("t", 2)), mark("1")); err != nil || len(refused) > 0 {
				t.Fatal(refused, err)
			}
			if n := refusals.Hits(); n != 3 {
				t.Errorf("refused %d times, want 3", n)
			}
			c.wantCommitted(t, "t", "0", "1")
			c.wantCommitted(t, marks, "1")
		})
	}
}

// A client that gets itself another epoch within a transaction aborts all earlier
// records. The rest must not be committed.
func TestTransactionUnderTwoEpochsIsNotCommitted(t *testing.T) {
	c, x := startTransactions(t, 1)
	evs := events("t", 2)
	rounds, _, err := x.plan(deadline(t), entriesOf(evs))
	must.OK(t, err)
	rounds = must.Get(x.withMark(deadline(t), rounds, mark("1")))(t)
	failed, err := x.write(deadline(t), rounds)
	if err != nil || len(failed) > 0 {
		t.Fatal(failed, err)
	}
	evs[0].Record.ProducerEpoch--
	if err := x.commit(deadline(t), rounds); !errors.Is(err, ErrUnsettled) {
		t.Errorf("commit = %v, want ErrUnsettled", err)
	}
	x.Close()
	c.transactions(t) // ends the open transaction
	c.wantCommitted(t, "t")
}

// Failure mode 32.
func TestClaimThatIsDeniedIsConfiguration(t *testing.T) {
	c := startCluster(t)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.TransactionalIDAuthorizationFailed, Count: -1})
	x := must.Get(NewTransactions(c.config(), "tx"))(t)
	t.Cleanup(x.Close)
	err := x.Claim(deadline(t))
	if failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), `id "tx"`) || !strings.Contains(failure.RemedyOf(err), "tx") {
		t.Errorf("Claim = %v, %q", err, failure.RemedyOf(err))
	}
}

// Brokers allow the ten seconds of usual transactions, but not the twelve of whole ones.
func TestClaimOfMoreTimeThanBrokersAllowIsConfiguration(t *testing.T) {
	c := startCluster(t, kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "11999"}))
	c.transactions(t)
	cfg := c.config()
	cfg.TransactionBoundaries = true
	x := must.Get(NewTransactions(cfg, "tx"))(t)
	t.Cleanup(x.Close)
	err := x.Claim(deadline(t))
	if failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), "raise transaction.max.timeout.ms of the brokers to 12000") {
		t.Errorf("Claim = %v, %q", err, failure.RemedyOf(err))
	}
}

// A transaction that may have everything buffered has time for all records.
func TestTimeoutOfTransactions(t *testing.T) {
	for name, c := range map[string]struct {
		boundaries bool
		buffered   int64
		want       time.Duration
	}{
		"batches":            {false, 1 << 30, 10 * time.Second},
		"the usual bound":    {true, 8 << 20, 12 * time.Second},
		"a gibibyte at once": {true, 1 << 30, 266 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := *DefaultOptions()
			cfg.TransactionBoundaries, cfg.MaxBufferedBytes = c.boundaries, c.buffered
			x := must.Get(NewTransactions(cfg, "tx"))(t)
			t.Cleanup(x.Close)
			if got := x.k.client.OptValue(kgo.TransactionTimeout); got != c.want || x.timeout != c.want {
				t.Errorf("timeout %v, and %v of the client, want %v", x.timeout, got, c.want)
			}
		})
	}
}

// A coordinator grants no claim before the end of the former transaction.
func TestMode73ClaimThatIsNotGrantedHasARemedy(t *testing.T) {
	x := &Transactions{k: &Kafka{cfg: *DefaultOptions()}, id: "cdc-outbox/db-slot"}
	for _, err := range []error{context.DeadlineExceeded, kerr.ConcurrentTransactions} {
		got := x.unclaimed(err)
		remedy := failure.RemedyOf(got)
		if failure.ClassOf(got) != failure.Transient || !strings.Contains(remedy, "cdc-outbox txn list") ||
			!strings.Contains(remedy, "kafka-transactions.sh --bootstrap-server localhost:9092 describe --transactional-id 'cdc-outbox/db-slot'") {
			t.Errorf("%v: remedy %q", got, remedy)
		}
	}
}
