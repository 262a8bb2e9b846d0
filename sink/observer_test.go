package sink

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// witness is an Observer that remembers.
type witness struct {
	unobserved
	reconnects, answers, throttles atomic.Int64
	waiting                        chan bool
	partitions                     chan [2]int32 // from and to
	// The rest is told on the sink's own goroutine.
	remade, used      []string // topics
	reasons, remedies []string // of refusals
}

func newWitness() *witness {
	return &witness{waiting: make(chan bool, 10), partitions: make(chan [2]int32, 10)}
}

func (w *witness) Reconnect() { w.reconnects.Add(1) }

func (w *witness) PartitionsChanged(_ string, from, to int32) { w.partitions <- [2]int32{from, to} }

func (w *witness) TopicRemade(topic string) { w.remade = append(w.remade, topic) }

func (w *witness) TopicWaiting(_ string, on bool) { w.waiting <- on }

func (w *witness) Refused(reason, remedy string) {
	w.reasons, w.remedies = append(w.reasons, reason), append(w.remedies, remedy)
}

func (w *witness) TopicUsed(topic string) { w.used = append(w.used, topic) }

func (w *witness) Throttled(time.Duration) { w.throttles.Add(1) }

func (w *witness) Answered() { w.answers.Add(1) }

// told notes the calls of a TransactionObserver.
type told []string

func (o *told) TransactionOpen(since time.Time) {
	if since.IsZero() {
		*o = append(*o, "none is open")
		return
	}
	*o = append(*o, "open")
}

func (o *told) TransactionCommitted(records int, bytes int64, took time.Duration) {
	*o = append(*o, fmt.Sprintf("committed: %d records, %d bytes, took time: %t", records, bytes, took > 0))
}

func (o *told) TransactionAborted() { *o = append(*o, "aborted") }

// want compares the calls since the last want.
func (o *told) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(*o, want) {
		t.Errorf("told %q, want %q", *o, want)
	}
	*o = nil
}

func TestObserverIsToldHowTransactionsGo(t *testing.T) {
	c := startCluster(t)
	c.createTopic(t, "t", 1)
	c.createTopic(t, marks, 1)
	c.refuse(1, "t", []byte("poison"), kerr.InvalidRecord)
	var observer told
	x := must.Get(NewTransactions(c.config(), "tx", WithTransactionObserver(&observer)))(t)
	t.Cleanup(x.Close)
	must.OK(t, x.Claim(deadline(t)))

	evs := []*transform.Event{event("t", "a", 0, 1), event("t", "b", 0, 2)}
	written := checkpoint.Written{}
	written.Count("t", 0)
	written.Count("t", 0)
	header := must.Get(written.Header())(t)
	ends := checkpoint.Ends{}
	ends.Raise("t", topicID(c.TopicInfo("t").TopicID).text(), 0, 2)
	header = append(header, must.Get(ends.Header())(t)...)
	bytes := evs[0].Size() + evs[1].Size() + int64(len("p"+"1"+checkpoint.WrittenHeader+checkpoint.EndsHeader)+len(header))
	must.Get(x.Transact(deadline(t), entriesOf(evs), mark("1")))(t)
	observer.want(t, "open", fmt.Sprintf("committed: 3 records, %d bytes, took time: true", bytes), "none is open")

	bad := event("t", "a", 0, 3)
	bad.Record.Value = []byte("poison")
	if refused := must.Get(x.Transact(deadline(t), entriesOf([]*transform.Event{bad}), mark("2")))(t); len(refused) != 1 {
		t.Errorf("refused %v, want the event", refused)
	}
	observer.want(t, "open", "aborted", "none is open")

	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.UnknownServerError})
	if _, err := x.Transact(deadline(t), entriesOf(evs), mark("2")); !errors.Is(err, ErrUnsettled) {
		t.Errorf("Transact = %v, want ErrUnsettled", err)
	}
	observer.want(t, "open") // for all we know
	x.Close()
	observer.want(t, "none is open")
}

// A quota makes deliveries slow and gives no error.
func TestThrottlingIsTold(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders"))
	w := newWitness()
	k, logs := newKafka(t, c.config(), WithObserver(w))
	for range 2 {
		k.connections.OnBrokerThrottle(kgo.BrokerMetadata{NodeID: 1}, 1500*time.Millisecond, true)
	}
	said := logs.FilterMessageSnippet("throttles the connector").All()
	if w.throttles.Load() != 2 || len(said) != 1 || !strings.Contains(said[0].ContextMap()["remedy"].(string), "kafka-configs.sh") {
		t.Errorf("told %d times, logged %v", w.throttles.Load(), said)
	}
}
