package sink

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// startTwoBrokers returns a cluster where partitions 0 and 2 of t and the marks
// are led by one broker and partition 1 by another, and a transactor that knows
// the leaders, after a first transaction.
func startTwoBrokers(t *testing.T, version int16) (*cluster, *Transactions) {
	t.Helper()
	c := startCluster(t, kfake.NumBrokers(2))
	c.setTransactionVersion(t, version)
	c.createTopic(t, "t", 3)
	c.createTopic(t, marks, 1)
	must.OK(t, c.MoveTopicPartition(marks, 0, 0))
	for p := range int32(3) {
		must.OK(t, c.MoveTopicPartition("t", p, p%2))
	}
	x := c.transactions(t)
	transact(t, x, "first", 0, 1)
	return c, x
}

// prepare has the transactor prepare the next transaction, at any time after the last.
func prepare(t *testing.T, x *Transactions) {
	t.Helper()
	x.recent.at = time.Now().Add(time.Hour)
	must.OK(t, x.Prepare(deadline(t)))
}

// requests are the names of the requests of the kinds sent from now on.
func (c *cluster) requests(keys ...kmsg.Key) func() []string {
	var mu sync.Mutex
	var names []string
	var last kmsg.Request // shown for each partition
	c.Fault(kfake.Fault{Keys: keys, Observe: true, Count: -1, When: func(req kmsg.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if req == last {
			return true
		}
		last = req
		name := kmsg.Key(req.Key()).Name()
		if add, ok := req.(*kmsg.AddPartitionsToTxnRequest); ok {
			for _, topic := range add.Topics {
				name += " " + topic.Topic + strconv.Itoa(len(topic.Partitions))
			}
		}
		names = append(names, name)
		return true
	}})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(names)
	}
}

// Otherwise each leader would have to tell the coordinator, one after the other.
func TestCoordinatorIsToldOfAllPartitionsAtOnce(t *testing.T) {
	c, x := startTwoBrokers(t, 2)
	sent := c.requests(kmsg.AddPartitionsToTxn, kmsg.Produce)
	transact(t, x, "second", 0, 1, 1)
	got := sent()
	if len(got) != 3 || got[1] != "Produce" || got[2] != "Produce" {
		t.Fatalf("sent %v, want all partitions, then a request to each of two brokers", got)
	}
	if got[0] != "AddPartitionsToTxn t2 marks1" && got[0] != "AddPartitionsToTxn marks1 t2" {
		t.Errorf("sent %v, want two partitions of t and the mark's first", got)
	}
	c.wantCommitted(t, marks, "first", "second")
}

// The leading broker would have to wait 20 ms for the markers of the last
// transaction.
func TestCoordinatorIsToldOfOneBrokersPartitions(t *testing.T) {
	c, x := startTwoBrokers(t, 2)
	sent := c.requests(kmsg.AddPartitionsToTxn, kmsg.Produce)
	transact(t, x, "second") // the mark alone
	if got := sent(); !slices.Equal(got, []string{"AddPartitionsToTxn marks1", "Produce"}) {
		t.Errorf("sent %v, want the partition first", got)
	}
	c.wantCommitted(t, marks, "first", "second")
}

func TestCoordinatorIsAskedAgainWhileItIsBusy(t *testing.T) {
	c, x := startTwoBrokers(t, 2)
	refusals := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: kerr.ConcurrentTransactions, Count: 3})
	transact(t, x, "second", 0, 1)
	if n := refusals.Hits(); n != 3 {
		t.Errorf("refused %d times, want 3", n)
	}
	c.wantCommitted(t, marks, "first", "second")
}

// Many transactions wait for a busy cluster's markers at once: questions in quick succession
// would keep it from the work.
func TestBusyCoordinatorIsAskedEverMoreRarely(t *testing.T) {
	c, x := startTwoBrokers(t, 2)
	var first time.Time
	refusals := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: kerr.ConcurrentTransactions, Count: -1, When: func(kmsg.Request) bool {
		if first.IsZero() {
			first = time.Now()
		}
		return time.Since(first) < enlistPatience/2
	}})
	transact(t, x, "second", 0, 1)
	if n := refusals.Hits(); n < 2 || n > 40 {
		t.Errorf("asked %d times within %s, want about twenty", n, enlistPatience/2)
	}
	c.wantCommitted(t, marks, "first", "second")
}

// Without enlist the brokers tell the coordinator. The error of the records counts.
func TestWhatTheCoordinatorIsNotToldBrokersTellIt(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.ConcurrentTransactions, kerr.TopicAuthorizationFailed, kerr.InvalidRequest, kerr.UnknownServerError} {
		t.Run(refusal.Message, func(t *testing.T) {
			c, x := startTwoBrokers(t, 2)
			refusals := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: refusal, Count: -1})
			transact(t, x, "second", 0, 1)
			if refusals.Hits() == 0 {
				t.Error("nothing was refused")
			}
			c.wantCommitted(t, marks, "first", "second")
		})
	}
}

// The partitions were added to the aborted transaction only.
func TestAbortedTransactionIsEnlistedAnew(t *testing.T) {
	c, x := startTwoBrokers(t, 2)
	sent := c.requests(kmsg.AddPartitionsToTxn, kmsg.EndTxn)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{0}, Err: kerr.MessageTooLarge, Count: 1})
	transact(t, x, "second", 0, 0, 1)
	got := sent()
	if len(got) != 4 || got[0] == "EndTxn" || got[1] != "EndTxn" || got[2] == "EndTxn" || got[3] != "EndTxn" {
		t.Errorf("sent %v, want the partitions before each of two ends", got)
	}
	c.wantCommitted(t, marks, "first", "second")
}

// The prepared partitions are the likely ones. The coordinator is told of the rest
// when their records come.
func TestPreparedTransactionHasThePartitionsOfTheLastOnes(t *testing.T) {
	for name, c := range map[string]struct {
		partitions []int32
		told       int
	}{
		"the same partitions":        {[]int32{0, 1}, 1},
		"fewer":                      {[]int32{1}, 1},
		"none but the mark's":        {nil, 1},
		"one that those before lack": {[]int32{0, 1, 2}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, x := startTwoBrokers(t, 2)
			transact(t, x, "second", 1)
			sent := cluster.requests(kmsg.AddPartitionsToTxn)
			prepare(t, x)
			prepare(t, x) // as when a checkpoint is saved in between
			prepared := sent()
			transact(t, x, "third", c.partitions...)
			if got := sent(); len(prepared) != 1 || !strings.Contains(prepared[0], " t2") || len(got) != c.told {
				t.Errorf("prepared with %v, want t2 and the mark's; sent %v, want %d requests", prepared, got, c.told)
			} else if c.told == 2 && got[1] != "AddPartitionsToTxn t1" {
				t.Errorf("then sent %v, want the partition that was not foreseen", got[1])
			}
			cluster.wantCommitted(t, marks, "first", "second", "third")
		})
	}
}

// The preparation ends with the transaction.
func TestPreparedPartitionsAreOfOneTransaction(t *testing.T) {
	c, x := startTwoBrokers(t, 2)
	transact(t, x, "second", 0, 1)
	prepare(t, x)
	transact(t, x, "third") // the mark alone
	sent := c.requests(kmsg.AddPartitionsToTxn)
	transact(t, x, "fourth", 0, 1)
	if got := sent(); len(got) != 1 || !strings.Contains(got[0], " t2") {
		t.Errorf("sent %v, want all partitions again", got)
	}
	c.wantCommitted(t, marks, "first", "second", "third", "fourth")
}

// There is no preparation without partitions to tell brokers, or with wrong ones.
func TestNothingIsPreparedInVain(t *testing.T) {
	t.Run("the last transaction was not foreseen", func(t *testing.T) {
		c, x := startTwoBrokers(t, 2)
		transact(t, x, "second", 2)
		sent := c.requests(kmsg.AddPartitionsToTxn)
		prepare(t, x)
		if got := sent(); len(got) > 0 || x.enlisted != nil {
			t.Errorf("sent %v, prepared: %t", got, x.enlisted != nil)
		}
	})
	t.Run("epochs do not differ", func(t *testing.T) {
		c, x := startTwoBrokers(t, 1)
		transact(t, x, "second", 0, 1)
		sent := c.requests(kmsg.AddPartitionsToTxn)
		prepare(t, x)
		if got := sent(); len(got) > 0 || x.enlisted != nil {
			t.Errorf("sent %v, prepared: %t", got, x.enlisted != nil)
		}
	})
}

// Partitions that brokers refuse beforehand are added with the records.
func TestPreparationMayFail(t *testing.T) {
	c, x := startTwoBrokers(t, 2)
	transact(t, x, "second", 0, 1)
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: kerr.UnknownServerError, Count: 1})
	prepare(t, x)
	if refused.Hits() == 0 {
		t.Error("nothing was refused")
	}
	sent := c.requests(kmsg.AddPartitionsToTxn)
	transact(t, x, "third", 0, 1)
	if got := sent(); len(got) != 1 {
		t.Errorf("sent %v, want all partitions once more", got)
	}
	c.wantCommitted(t, marks, "first", "second", "third")
}

// Brokers would abort the transaction, and take the owner for a fenced producer.
func TestPreparedTransactionEndsBeforeAWaitForATopic(t *testing.T) {
	c, x := startTwoBrokers(t, 2)
	transact(t, x, "second", 0, 1)
	prepare(t, x)
	entries := entriesOf([]*transform.Event{event("late", "a", 0, 0)})
	ended := 0
	must.OK(t, x.Await(deadline(t), entries, func() error {
		ended++
		transact(t, x, "third")
		c.createTopic(t, "late", 1)
		return nil
	}))
	if ended != 1 || x.enlisted != nil {
		t.Errorf("ended %d times; open: %t", ended, x.enlisted != nil)
	}
	transact(t, x, "fourth", 0, 1)
	c.wantCommitted(t, marks, "first", "second", "third", "fourth")
}

// The next claim ends the empty transaction of a process that died.
func TestPreparedTransactionOfTheDeadIsEnded(t *testing.T) {
	c, x := startTwoBrokers(t, 2)
	transact(t, x, "second", 0, 1)
	prepare(t, x)
	x.Close()
	next := c.transactions(t)
	transact(t, next, "third", 0, 1)
	c.wantCommitted(t, marks, "first", "second", "third")
}

// Before transaction.version 2 a late request would begin a transaction. The
// client has to add the partitions, leader by leader.
func TestCoordinatorIsNotToldOfAllWhereEpochsDoNotDiffer(t *testing.T) {
	c, x := startTwoBrokers(t, 1)
	sent := c.requests(kmsg.AddPartitionsToTxn)
	transact(t, x, "second", 0, 1)
	for _, name := range sent() {
		if strings.Contains(name, "t2") {
			t.Errorf("sent %q", name)
		}
	}
	c.wantCommitted(t, marks, "first", "second")
}
