package sink

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// unnumbered makes brokers refuse the next n producers their ids.
func (c *cluster) unnumbered(n int, err *kerr.Error) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: err, Count: n})
}

// A transient refusal of the producer's id holds the delivery up, but neither ends
// the delivery nor changes the records.
func TestRefusedProducerIDPasses(t *testing.T) {
	for _, tt := range []struct {
		err   *kerr.Error
		times int
	}{
		{kerr.ClusterAuthorizationFailed, broker.Refusals - 1}, // a starting broker
		{kerr.UnknownServerError, 1},
		{kerr.UnknownServerError, 2 * broker.Refusals},
		{kerr.InvalidRequest, 1},
		{kerr.NotCoordinator, 1},
		{kerr.CoordinatorNotAvailable, 1},
		{kerr.CoordinatorLoadInProgress, 1},
		{kerr.RequestTimedOut, 1},
	} {
		t.Run(tt.err.Message, func(t *testing.T) {
			c := startCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(4, "orders"))
			refusals := c.unnumbered(tt.times, tt.err)
			k, _ := newKafka(t, c.config())
			deliver(t, k, events("orders", 200))
			ascending(t, c.values(t, "orders", 4), 200)
			if n := refusals.Hits(); n != tt.times {
				t.Errorf("the producer was refused %d times", n)
			}
		})
	}
}

func TestProducerIDRefusedForGoodIsConfiguration(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(4, "orders"))
	asked := c.unnumbered(-1, kerr.ClusterAuthorizationFailed)
	k, _ := newKafka(t, c.config())
	err := k.Deliver(deadline(t), events("orders", 200), noReject(t))
	if failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) != k.cfg.Tools().Allow("IdempotentWrite", "") {
		t.Errorf("got %v, remedy %q", err, failure.RemedyOf(err))
	}
	if n := asked.Hits(); n != broker.Refusals {
		t.Errorf("the producer asked %d times", n)
	}
}

// The first record is a dead letter, in the middle of a delivery with another.
func TestRefusedProducerIDOfADeadLetter(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders"), kfake.SeedTopics(1, "dead"))
	c.unnumbered(2, kerr.UnknownServerError)
	c.refuse(1, "orders", poison, kerr.InvalidRecord)
	cfg := c.config()
	cfg.MissingTopic = MissingTopicBadEvent
	k, _ := newKafka(t, cfg)
	evs := events("orders", 50)
	evs[0].Record.Topic = "absent"
	evs[20].Record.Value = poison
	var rejected rejects
	must.OK(t, k.Deliver(deadline(t), evs, func(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
		_ = rejected.reject(ctx, ev, bad)
		return k.DeadLetter(ctx, ev, bad)
	}))
	want := rejects{{"id-0", transform.ReasonMissingTopic}, {"id-20", transform.ReasonRejectedByBroker}}
	if !slices.Equal(rejected, want) {
		t.Errorf("rejected %v, want %v", rejected, want)
	}
	if got := c.values(t, "dead", 1)[0]; !slices.Equal(got, []string{"0", "poison"}) {
		t.Errorf("dead letters %q", got)
	}
	var written []string
	for n := range 50 {
		if n != 0 && n != 20 {
			written = append(written, strconv.Itoa(n))
		}
	}
	if got := c.values(t, "orders", 1)[0]; !slices.Equal(got, written) {
		t.Errorf("wrote %q", got)
	}
}

// While the gate is closed nothing is written, and the waiting writes follow when
// the gate opens.
func TestMode30BarrierHoldsWrites(t *testing.T) {
	client, broker := net.Pipe()
	defer client.Close()
	defer broker.Close()
	g := new(writeBarrier)
	conn := must.Get(g.dialer(func(context.Context, string, string) (net.Conn, error) { return client, nil })(t.Context(), "", ""))(t)
	g.close()
	open := false
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write([]byte("x"))
		wrote <- err
	}()
	read := make(chan bool, 1)
	go func() {
		_, _ = broker.Read(make([]byte, 1))
		read <- open // a race unless the gate orders it
	}()
	open = true
	g.open()
	if !<-read {
		t.Error("written through a closed gate")
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

func BenchmarkDeliver(b *testing.B) {
	c := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(6, "orders"), kfake.BlackholeProduce()))(b)
	defer c.Close()
	cfg := *DefaultOptions()
	cfg.Brokers = c.ListenAddrs()
	k := must.Get(NewKafka(cfg))(b)
	defer k.Close()
	const batch = 1200 // the pipeline's
	evs := make([]*transform.Event, batch)
	for i := range evs {
		evs[i] = event("orders", fmt.Sprintf("k%d", i%500), transform.PartitionByKey, i)
		evs[i].Record.Value = bytes.Repeat([]byte(`{"order":"4711"}`), 35)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		for _, ev := range evs {
			ev.Record.Partition = transform.PartitionByKey
		}
		must.OK(b, k.Deliver(context.Background(), evs, nil))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/event")
}

func TestClientTakesEveryConfigurableRecordSize(t *testing.T) {
	for _, size := range []int32{1 << 10, 1 << 20, 90 << 20, 1 << 30} {
		cfg := *DefaultOptions()
		cfg.MaxRecordBytes = size
		k, err := NewKafka(cfg)
		if err != nil {
			t.Errorf("%d bytes: %v", size, err)
			continue
		}
		k.Close()
	}
}
