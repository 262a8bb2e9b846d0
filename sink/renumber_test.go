package sink

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

const worn = 7

// startWorn returns a cluster, and a transactor with the producer id worn at the
// epoch.
func startWorn(t *testing.T, epoch int16) (*cluster, *Transactions) {
	t.Helper()
	c := startCluster(t)
	c.createTopic(t, "t", 1)
	c.createTopic(t, marks, 1)
	var asked atomic.Bool
	c.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if asked.Swap(true) {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ProducerID, resp.ProducerEpoch = worn, epoch
		return resp, nil, true
	})
	return c, c.transactions(t)
}

// The last epoch of a producer id is used for no transaction: a broker that dies
// then may leave the transactional id unusable (see renumber).
func TestTransactionsTakeAnotherProducerIDInTime(t *testing.T) {
	c, x := startWorn(t, lastEpoch)
	for _, text := range []string{"1", "2"} {
		ev := event("t", "a", transform.PartitionByKey, int(text[0]-'0'))
		refused, err := x.Transact(deadline(t), entriesOf([]*transform.Event{ev}), mark(text))
		if err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
		if ev.Record.ProducerID == worn {
			t.Errorf("event %s was written with the producer id that is used up", text)
		}
	}
	c.wantCommitted(t, "t", "1", "2")
	c.wantCommitted(t, marks, "1", "2")
}

// A claimant of the transactional id during the fetch of another id may have
// written the same events.
func TestTransactionsNoticeAClaimWhileTheyTakeAnotherProducerID(t *testing.T) {
	c, x := startWorn(t, lastEpoch)
	other := c.client(t, kgo.TransactionalID("tx"))
	if _, _, err := other.ProducerID(deadline(t)); err != nil {
		t.Fatal(err)
	}
	_, err := x.Transact(deadline(t), entriesOf([]*transform.Event{event("t", "a", transform.PartitionByKey, 1)}), mark("1"))
	if !errors.Is(err, ErrFenced) {
		t.Errorf("Transact = %v, want ErrFenced", err)
	}
	c.wantCommitted(t, "t")
}

// The search for refused records writes and aborts transactions. Each takes an
// epoch, too.
func TestSearchForARefusedRecordTakesAnotherProducerIDInTime(t *testing.T) {
	c, x := startWorn(t, lastEpoch-1)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{produce}, Topic: "t", Partitions: []int32{0}, Err: kerr.InvalidRecord, Count: -1, When: writtenBy(worn)})
	c.refuse(1, "t", []byte("poison"), kerr.InvalidRecord)
	c.ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		end := req.(*kmsg.EndTxnRequest)
		if end.ProducerID != worn {
			return nil, nil, false
		}
		if end.ProducerEpoch == lastEpoch {
			t.Error("a transaction has the last epoch of the producer id")
		}
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ProducerID, resp.ProducerEpoch = worn, end.ProducerEpoch+1
		return resp, nil, true
	})
	evs := []*transform.Event{event("t", "a", 0, 0), event("t", "a", 0, 1), event("t", "a", 0, 2)}
	evs[1].Record.Value = []byte("poison")
	x.limit = 2 * recordSize(evs[1], evs[1].Size()) // the round of the mark is never sent
	refused, err := x.Transact(deadline(t), entriesOf(evs), mark("1"))
	if err != nil || len(refused) != 1 || refused[0].Index != 1 {
		t.Errorf("refused %v, %v, want the second event", refused, err)
	}
}

// writtenBy matches a request to produce by the producer.
func writtenBy(id int64) func(kmsg.Request) bool {
	return func(req kmsg.Request) bool {
		var batch kmsg.RecordBatch
		err := batch.ReadFrom(req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records)
		return err == nil && batch.ProducerID == id
	}
}
