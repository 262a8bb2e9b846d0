package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// produce is the request key of Produce.
const produce = kmsg.Produce

// cluster is a kfake cluster behind an unreliable network.
type cluster struct {
	*kfake.Cluster
	net *network
}

func startCluster(t *testing.T, opts ...kfake.Opt) *cluster {
	t.Helper()
	n := new(network)
	opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.ListenFn(n.listen)}, opts...)
	c := must.Get(kfake.NewCluster(opts...))(t)
	t.Cleanup(c.Close)
	return &cluster{c, n}
}

// network lies between the client and the brokers.
type network struct {
	cutNext atomic.Bool // the next answer is lost with its connection

	mu    sync.Mutex
	down  bool // no connection is answered
	conns []net.Conn
}

func (n *network) listen(network, addr string) (net.Listener, error) {
	l, err := net.Listen(network, addr)
	return listener{l, n}, err
}

// fail ends every connection and refuses new ones until heal.
func (n *network) fail() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	for _, c := range n.conns {
		c.Close()
	}
	n.conns = nil
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}

type listener struct {
	net.Listener
	net *network
}

func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.net.take(c) {
			return brokerConn{c, l.net}, nil
		}
		c.Close()
	}
}

// take notes a new connection, unless none is to be answered.
func (n *network) take(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return false
	}
	n.conns = append(n.conns, c)
	return true
}

type brokerConn struct {
	net.Conn
	net *network
}

func (c brokerConn) Write(p []byte) (int, error) {
	if c.net.cutNext.CompareAndSwap(true, false) {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// cutNextAck lets the next Produce be carried out and loses the answer.
func (c *cluster) cutNextAck() {
	c.Fault(kfake.Fault{Keys: []kmsg.Key{produce}, Observe: true, When: func(kmsg.Request) bool {
		c.net.cutNext.Store(true)
		return true
	}})
}

// refuse makes the cluster refuse every batch for the topic with the marker in it.
// The topic must exist.
func (c *cluster) refuse(partitions int32, topic string, marker []byte, err *kerr.Error) {
	id := c.TopicInfo(topic).TopicID // the request has no name
	for p := range partitions {
		c.Fault(kfake.Fault{
			Keys: []kmsg.Key{produce}, Topic: topic, Partitions: []int32{p}, Err: err, Count: -1,
			When: func(req kmsg.Request) bool {
				for _, t := range req.(*kmsg.ProduceRequest).Topics {
					for _, part := range t.Partitions {
						if t.TopicID == id && part.Partition == p && bytes.Contains(part.Records, marker) {
							return true
						}
					}
				}
				return false
			},
		})
	}
}

// largestBatch watches the size of the batches sent from now on.
func (c *cluster) largestBatch() *atomic.Int64 {
	largest := new(atomic.Int64)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{produce}, Observe: true, Count: -1, When: func(req kmsg.Request) bool {
		for _, t := range req.(*kmsg.ProduceRequest).Topics {
			for _, p := range t.Partitions {
				largest.Store(max(largest.Load(), int64(len(p.Records))))
			}
		}
		return true
	}})
	return largest
}

func (c *cluster) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl := must.Get(kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, opts...)...))(t)
	t.Cleanup(cl.Close)
	return cl
}

// admin changes the cluster's topics.
func (c *cluster) admin(t *testing.T) *kadm.Client {
	t.Helper()
	return kadm.NewClient(c.client(t))
}

func (c *cluster) createTopic(t *testing.T, name string, partitions int32) {
	t.Helper()
	must.Get(c.admin(t).CreateTopic(deadline(t), partitions, 1, nil, name))(t)
}

func (c *cluster) growTopic(t *testing.T, name string, partitions int) {
	t.Helper()
	if got, err := c.admin(t).UpdatePartitions(deadline(t), partitions, name); errors.Join(err, got.Error()) != nil {
		t.Fatal(err, got.Error())
	}
}

// read returns the topic's records, by partition.
func (c *cluster) read(t *testing.T, topic string, partitions int32) [][]*kgo.Record {
	t.Helper()
	ctx := deadline(t)
	ends := must.Get(c.admin(t).ListEndOffsets(ctx, topic))(t)
	var want int64
	ends.Each(func(end kadm.ListedOffset) { want += end.Offset })
	cl := c.client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := make([][]*kgo.Record, partitions)
	for n := int64(0); n < want; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %d of %d records of %s: %v", n, want, topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got[r.Partition] = append(got[r.Partition], r)
			n++
		})
	}
	return got
}

// values returns the topic's values, partition by partition.
func (c *cluster) values(t *testing.T, topic string, partitions int32) [][]string {
	t.Helper()
	got := make([][]string, partitions)
	for p, recs := range c.read(t, topic, partitions) {
		for _, r := range recs {
			got[p] = append(got[p], string(r.Value))
		}
	}
	return got
}

// config returns a configuration for the cluster, without compression, so refuse
// can see into records.
func (c *cluster) config() Options {
	cfg := *DefaultOptions()
	cfg.Brokers = c.ListenAddrs()
	cfg.Compression = "none"
	return cfg
}

// newKafka returns a sink with the dead-letter topic "dead", and its log.
func newKafka(t *testing.T, cfg Options, opts ...Option) (*Kafka, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	k := must.Get(NewKafka(cfg, append([]Option{WithLogger(zap.New(core)), WithDeadLetterTopic("dead")}, opts...)...))(t)
	t.Cleanup(k.Close)
	return k, logs
}

// deadline returns a context ending well after anything here should.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// deliver delivers events, and all arrive.
func deliver(t *testing.T, k *Kafka, evs []*transform.Event) {
	t.Helper()
	must.OK(t, k.Deliver(deadline(t), evs, noReject(t)))
}

var commitTime = time.Date(2026, 8, 1, 12, 30, 0, 123e6, time.UTC)

// event returns the n-th event, with the value "n", for a partition or
// transform.PartitionByKey.
func event(topic, key string, partition int32, n int) *transform.Event {
	ev := &transform.Event{
		Table:      "public.outbox",
		ID:         fmt.Appendf(nil, "id-%d", n),
		Position:   pg.Position{CommitLSN: pg.LSN(0x1_0000_0000 + n), Seq: uint32(n)},
		XID:        700,
		CommitTime: commitTime,
	}
	ev.Record = kgo.Record{
		Topic:     topic,
		Value:     fmt.Appendf(nil, "%d", n),
		Partition: partition,
		Headers:   []kgo.RecordHeader{{Key: "id", Value: ev.ID}},
	}
	if key != "" {
		ev.Record.Key = []byte(key)
	}
	return ev
}

// events returns n events with keys k0 to k6.
func events(topic string, n int) []*transform.Event {
	evs := make([]*transform.Event, n)
	for i := range evs {
		evs[i] = event(topic, fmt.Sprintf("k%d", i%7), transform.PartitionByKey, i)
	}
	return evs
}

// rejection is a call of Reject.
type rejection struct {
	ID     string
	Reason transform.Reason
}

// rejects is a Reject that notes the calls.
type rejects []rejection

func (r *rejects) reject(_ context.Context, ev *transform.Event, bad *transform.BadEvent) error {
	*r = append(*r, rejection{string(ev.ID), bad.Reason})
	return nil
}

// noReject fails the test.
func noReject(t *testing.T) Reject {
	return func(_ context.Context, ev *transform.Event, bad *transform.BadEvent) error {
		t.Errorf("event %s rejected: %v", ev.ID, bad)
		return nil
	}
}
