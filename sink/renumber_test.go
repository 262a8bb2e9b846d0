package sink

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// startWorn returns a cluster, and a transactor whose producer id has its last
// epoch.
func startWorn(t *testing.T) (*cluster, *Transactions) {
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
		resp.ProducerID, resp.ProducerEpoch = 7, lastEpoch
		return resp, nil, true
	})
	return c, c.transactions(t)
}

// The last epoch of a producer id is used for no transaction: with it, a broker
// that dies may leave the transactional id unusable (see renumber).
func TestTransactionsTakeAnotherProducerIDInTime(t *testing.T) {
	c, x := startWorn(t)
	for _, text := range []string{"1", "2"} {
		ev := event("t", "a", transform.PartitionByKey, int(text[0]-'0'))
		refused, err := x.Transact(deadline(t), entriesOf([]*transform.Event{ev}), mark(text))
		if err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
		if ev.Record.ProducerID == 7 {
			t.Errorf("event %s was written with the producer id that is used up", text)
		}
	}
	c.wantCommitted(t, "t", "1", "2")
	c.wantCommitted(t, marks, "1", "2")
}

// Who claims the transactional id while another id is fetched may have written
// what this one is about to write.
func TestTransactionsNoticeAClaimWhileTheyTakeAnotherProducerID(t *testing.T) {
	c, x := startWorn(t)
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
