package store

import (
	"context"
	"net"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// The leader of the checkpoint's partition is cut off from the controller and the other
// brokers, but not from clients, and another leader takes a later checkpoint. The old leader
// does not know of the deposition: only a request for the new epoch tells it.
func TestE2EKafkaLoadBesideADeposedLeader(t *testing.T) {
	c := kafkatest.StartCluster(t, []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
		kafkatest.OneController(), kafkatest.Setting("min.insync.replicas", "1"))
	open := func(opts ...kgo.Opt) checkpoint.Store {
		opts = append([]kgo.Opt{kgo.SeedBrokers(c.Brokers...)}, opts...)
		s := must.Get(NewKafka(limited(t), opts, testBase, "a", testTools))(t)
		t.Cleanup(s.Close)
		return s
	}
	reader := open() // makes the topic by any broker
	writer := open(kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr != c.Brokers[0] {
			addr = "127.0.0.1:1" // refused
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}))
	save(t, reader, sample(1))
	if c.Leader(t, testTopic, 0) == 0 { // beside the controller
		c.MoveLeader(t, testTopic, 0)
	}
	deposed := c.Leader(t, testTopic, 0)
	c.AwaitInSync(t, testTopic)
	wantLoad(t, reader, sample(1))

	c.Isolate()
	await.Until(t, "another broker leads", func() bool { return writer.Save(limited(t), sample(2)) == nil })
	newer := 0
	for range 10 {
		reader = open(kgo.SeedBrokers(c.Brokers[deposed])) // asked first
		got, ok, err := reader.Load(limited(t))
		switch {
		case err != nil:
			t.Logf("no answer: %v", err)
		case !ok || !reflect.DeepEqual(got, sample(2)):
			t.Fatalf("loaded %+v, %v: what the deposed leader has", got, ok)
		default:
			newer++
		}
	}
	if newer == 0 {
		t.Error("the newer checkpoint was never loaded")
	}
}
