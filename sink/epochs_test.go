package sink

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// startVersion returns a transactor at a cluster with this transaction.version.
func startVersion(t *testing.T, version int16) (*cluster, *Transactions) {
	t.Helper()
	c := startCluster(t)
	c.setTransactionVersion(t, version)
	c.createTopic(t, "t", 1)
	c.createTopic(t, marks, 1)
	return c, c.transactions(t)
}

func (c *cluster) setTransactionVersion(t *testing.T, version int16) {
	t.Helper()
	const unsafeDowngrade = 3
	updated, err := c.admin(t).UpdateFeatures(deadline(t), false,
		kadm.FeatureUpdate{Feature: "transaction.version", MaxVersionLevel: version, UpgradeType: unsafeDowngrade})
	must.OK(t, errors.Join(err, updated.Error()))
}

// cutNextEnd lets the next EndTxn be carried out and loses the answer.
// cutNextEnd returns how many EndTxn there were from then on.
func (c *cluster) cutNextEnd() (asked func() int) {
	cut := false
	ends := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Observe: true, Count: -1, When: func(kmsg.Request) bool {
		if !cut {
			cut = true
			c.net.cutNext.Store(true)
		}
		return true
	}})
	return ends.Hits
}

// wantOneEnd wants a transaction to be unsettled after an end without an answer,
// and the end to be requested once.
func (c *cluster) wantOneEnd(t *testing.T, x *Transactions) {
	t.Helper()
	asked := c.cutNextEnd()
	if _, err := x.Transact(deadline(t), entriesOf(events("t", 1)), mark("1")); !errors.Is(err, ErrUnsettled) {
		t.Errorf("Transact = %v, want ErrUnsettled", err)
	}
	if n := asked(); n != 1 {
		t.Errorf("asked %d times for the end, want once", n)
	}
}

// The request may still be on the way, and would end the next transaction.
func TestEndWithoutAnswerIsNotAskedForTwice(t *testing.T) {
	c, x := startVersion(t, 1)
	transact(t, x, "first", 0)
	c.wantOneEnd(t, x)
}

// The brokers recognise a late request.
func TestEndWithoutAnswerIsAskedForTwiceWhereEpochsDiffer(t *testing.T) {
	c, x := startVersion(t, 2)
	transact(t, x, "first", 0)
	asked := c.cutNextEnd()
	transact(t, x, "second", 0)
	if n := asked(); n != 2 {
		t.Errorf("asked %d times for the end, want twice", n)
	}
	c.wantCommitted(t, marks, "first", "second")
}

// A client learns of the version at the beginning, and from the ends of transactions.
func TestEndIsAskedForOnceUntilEpochsAreSeenToDiffer(t *testing.T) {
	c, x := startVersion(t, 2)
	c.wantOneEnd(t, x)
}

// An aborted transaction may get another epoch with any version.
func TestEpochAfterAnAbortTellsNothing(t *testing.T) {
	e := new(epochs)
	for _, epoch := range []int16{3, 5} {
		e.begin(epoch)
	}
	if e.differ.Load() {
		t.Error("epochs differ after an abort")
	}
	e.committed(5)
	e.begin(5)
	if e.differ.Load() {
		t.Error("epochs differ though this one stays")
	}
	e.committed(5)
	e.begin(6)
	if !e.differ.Load() {
		t.Error("epochs do not differ though this one does")
	}
}
