package store

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// unaware makes the brokers answer the next n requests of a kind as one does
// that just came up, or has not heard of a new topic: they know no topic. It
// returns how many of these answers were given.
func unaware(t *testing.T, cluster *kfake.Cluster, key kmsg.Key, n int64) (answered func() int64) {
	t.Helper()
	var asked atomic.Int64
	cluster.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if asked.Add(1) > n {
			return nil, nil, false
		}
		cluster.KeepControl()
		switch req := r.(type) {
		case *kmsg.MetadataRequest:
			return unawareMetadata(t, cluster, req), nil, true
		case *kmsg.DescribeConfigsRequest:
			resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
			resource := kmsg.NewDescribeConfigsResponseResource()
			resource.ResourceName, resource.ResourceType = testTopic, kmsg.ConfigResourceTypeTopic
			resource.ErrorCode = kerr.UnknownTopicOrPartition.Code
			resp.Resources = append(resp.Resources, resource)
			return resp, nil, true
		}
		return nil, nil, false
	})
	return func() int64 { return min(asked.Load(), n) }
}

func unawareMetadata(t *testing.T, cluster *kfake.Cluster, req *kmsg.MetadataRequest) kmsg.Response {
	t.Helper()
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	for node, addr := range cluster.ListenAddrs() {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Error(err)
		}
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host = int32(node), host
		n, _ := strconv.Atoi(port)
		b.Port = int32(n)
		resp.Brokers = append(resp.Brokers, b)
	}
	topic := kmsg.NewMetadataResponseTopic()
	topic.Topic, topic.ErrorCode = kmsg.StringPtr(testTopic), kerr.UnknownTopicOrPartition.Code
	resp.Topics = append(resp.Topics, topic)
	return resp
}

// A broker that does not know the topic yet is no sign that it was deleted.
func TestKafkaLoadFromABrokerThatJustCameUp(t *testing.T) {
	cluster, opts := startKafka(t)
	s := kafkaAt(opts).store(t, "a")
	save(t, s, sample(1))
	for answered := unaware(t, cluster, kmsg.Metadata, 3); answered() < 3; { // the client knows it by heart for a moment
		wantLoad(t, s, sample(1))
	}
}

// Another instance has just created the topic, and not all brokers have heard
// of it.
func TestKafkaTopicThatIsNewToABroker(t *testing.T) {
	for name, key := range map[string]kmsg.Key{"metadata": kmsg.Metadata, "configuration": kmsg.DescribeConfigs} {
		t.Run(name, func(t *testing.T) {
			cluster, opts := startKafka(t)
			p := kafkaAt(opts)
			save(t, p.store(t, "a"), sample(1))
			unaware(t, cluster, key, 3)
			wantLoad(t, p.store(t, "a"), sample(1))
		})
	}
}

// A process that was stopped in between has spent its patience on one answer.
func TestUntilKnownAsksAgainWhateverTheTime(t *testing.T) {
	answers := []error{kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable, kerr.UnknownTopicOrPartition, nil}
	asked := 0
	err := untilKnown(t.Context(), 0, func(context.Context) error {
		asked++
		return answers[asked-1]
	})
	if err != nil || asked != len(answers) {
		t.Errorf("%v after %d answers, want all %d", err, asked, len(answers))
	}
}
