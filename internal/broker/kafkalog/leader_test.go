package kafkalog

import (
	"context"
	"errors"
	"maps"
	"net"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// limited is the test's context with a deadline only a hang reaches.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// A leader cut off from the other brokers answers as before, and names itself as
// the leader. At first the client knows no other broker.
func TestADeposedLeaderIsNotBelieved(t *testing.T) {
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(1, "t")))(t)
	t.Cleanup(cluster.Close)
	client := func(seed int32) *kgo.Client {
		c := must.Get(kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()[seed]), kgo.DefaultProduceTopic("t")))(t)
		t.Cleanup(c.Close)
		return c
	}
	before := cluster.LeaderFor("t", 0)
	after := (before + 1) % 3
	must.OK(t, client(before).ProduceSync(limited(t), kgo.StringRecord("before")).FirstErr())
	cut := &cutOff{leader: client(before).Broker(int(before)), t: t}
	cut.freeze()
	must.OK(t, cluster.MoveTopicPartition("t", 0, after))
	must.OK(t, client(after).ProduceSync(limited(t), kgo.StringRecord("after")).FirstErr())
	for _, key := range []kmsg.Key{kmsg.Metadata, kmsg.ListOffsets, kmsg.Fetch} {
		cluster.ControlKey(key.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if cluster.CurrentNode() != before {
				return nil, nil, false
			}
			return cut.answer(req), nil, true
		})
	}

	log := must.Get(Open(limited(t), client(before), "t", 0))(t)[0]
	_, end := log.Bounds()
	records := must.Get(Scan(limited(t), log, 0, end, func(*kgo.Record) bool { return true }))(t)
	if len(records) != 2 || string(records[1].Value) != "after" {
		t.Errorf("read %d records up to %d, want both", len(records), end)
	}

	// The same if the new leader was not known yet at the time of the question.
	stale := must.Get(Describe(limited(t), cut.leader, "t"))(t)
	deposed := &Partition{client: client(before), topic: "t", id: stale.ID, leader: stale.Leaders[0]}
	deposed.leader.Epoch++ // the next leader's
	if err := bound(limited(t), []*Partition{deposed}); !errors.Is(err, kerr.UnknownLeaderEpoch) {
		t.Errorf("the deposed leader's bounds: %v", err)
	}
	if _, _, err := deposed.Read(limited(t), 0); !errors.Is(err, kerr.UnknownLeaderEpoch) {
		t.Errorf("the deposed leader's records: %v", err)
	}
}

// cutOff is a leader of partition 0 of topic t that hears of nothing new.
type cutOff struct {
	t      *testing.T
	leader *kgo.Broker
	meta   *kmsg.MetadataResponse
	data   *kmsg.FetchResponse
}

// freeze notes the present answers.
func (c *cutOff) freeze() {
	topic, name := kmsg.NewMetadataRequestTopic(), "t"
	topic.Topic = &name
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = append(meta.Topics, topic)
	c.meta = must.Get(meta.RequestWith(limited(c.t), c.leader))(c.t)
	part := kmsg.NewFetchRequestTopicPartition()
	part.PartitionMaxBytes = 1 << 20
	data := kmsg.NewPtrFetchRequest()
	data.MaxBytes = 1 << 20
	data.Topics = []kmsg.FetchRequestTopic{{Topic: "t", TopicID: c.meta.Topics[0].TopicID, Partitions: []kmsg.FetchRequestTopicPartition{part}}}
	c.data = must.Get(data.RequestWith(limited(c.t), c.leader))(c.t)
}

// answer refuses requests for a later leader.
func (c *cutOff) answer(req kmsg.Request) kmsg.Response {
	refusal := func(epoch int32) int16 {
		if epoch > c.meta.Topics[0].Partitions[0].LeaderEpoch {
			return kerr.UnknownLeaderEpoch.Code
		}
		return 0
	}
	switch req := req.(type) {
	case *kmsg.MetadataRequest:
		return c.meta
	case *kmsg.ListOffsetsRequest:
		asked := req.Topics[0].Partitions[0]
		part := kmsg.NewListOffsetsResponseTopicPartition()
		part.ErrorCode, part.Offset = refusal(asked.CurrentLeaderEpoch), 0
		if asked.Timestamp == atEnd {
			part.Offset = c.data.Topics[0].Partitions[0].HighWatermark
		}
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsResponseTopicPartition{part}}}
		return resp
	case *kmsg.FetchRequest:
		part := c.data.Topics[0].Partitions[0]
		part.ErrorCode = refusal(req.Topics[0].Partitions[0].CurrentLeaderEpoch)
		resp := *c.data
		resp.Topics = []kmsg.FetchResponseTopic{{Topic: "t", TopicID: resp.Topics[0].TopicID, Partitions: []kmsg.FetchResponseTopicPartition{part}}}
		return &resp
	}
	return nil
}

// A broker that takes connections and says nothing holds nothing up for good.
func TestASilentBrokerIsPassedOver(t *testing.T) {
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t")))(t)
	t.Cleanup(cluster.Close)
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("t")))(t)
	t.Cleanup(client.Close)
	must.OK(t, client.ProduceSync(limited(t), kgo.StringRecord("event")).FirstErr())
	addr, asked := kafkatest.Silent(t)
	host, port, err := net.SplitHostPort(addr)
	must.OK(t, err)
	number := must.Get(strconv.Atoi(port))(t)
	leader := &cutOff{leader: client.Broker(0), t: t}
	leader.freeze()
	leader.meta.Brokers = append(leader.meta.Brokers, kmsg.MetadataResponseBroker{NodeID: 9, Host: host, Port: int32(number)})
	cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return leader.meta, nil, true
	})
	other := must.Get(kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...)))(t)
	t.Cleanup(other.Close)
	log := must.Get(Open(limited(t), other, "t", 0))(t)[0]
	<-asked
	if _, end := log.Bounds(); end != 1 {
		t.Errorf("the log ends at %d, want 1", end)
	}
}

func TestLater(t *testing.T) {
	topic := func(leader, epoch int32, err error) Topic {
		return Topic{Leaders: map[int32]Leader{0: {leader, epoch, err}}}
	}
	led, gone := topic(0, 4, nil), topic(-1, 4, kerr.LeaderNotAvailable)
	for name, c := range map[string]struct{ earlier, later Topic }{
		"a new leader":               {led, topic(1, 5, nil)},
		"a leader that is gone":      {led, topic(-1, 5, kerr.LeaderNotAvailable)},
		"a leader that not all know": {gone, led},
		"a topic that not all know":  {Topic{Err: kerr.UnknownTopicOrPartition}, led},
		"brokers without epochs":     {topic(0, -1, nil), topic(0, -1, nil)},
		"one broker without epochs":  {topic(0, -1, nil), led},
	} {
		for _, both := range [][2]Topic{{c.earlier, c.later}, {c.later, c.earlier}} {
			both[0].Leaders = maps.Clone(both[0].Leaders) // later writes there
			if got, err := later(both[0], both[1]); err != nil || !reflect.DeepEqual(got, c.later) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
	}
	again := topic(0, 0, nil)
	again.ID[0] = 1
	if _, err := later(led, again); !errors.Is(err, kerr.InconsistentTopicID) || !kerr.IsRetriable(err) {
		t.Errorf("a topic that was created again: %v", err)
	}
}
