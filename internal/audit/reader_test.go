package audit

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A broker that sends nothing for a while, as one with records in remote storage does,
// is asked again: its records are not taken for deleted.
func TestAnEmptyAnswerIsNoEnd(t *testing.T) {
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t")))(t)
	defer cluster.Close()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("t")))(t)
	defer client.Close()
	must.OK(t, client.ProduceSync(t.Context(), kgo.StringRecord("event")).FirstErr())
	opts := ReadOptions{Patience: time.Minute, Note: func(string) {}}
	logs := must.Get(Open(t.Context(), client, "t", opts))(t)
	read := func() (n int, err error) {
		_, err = NewReader(client, logs[0], "t", opts).Walk(t.Context(), 0, 1, func(records []*kgo.Record, _ int64) error {
			n += len(records)
			return nil
		})
		return n, err
	}
	var asked atomic.Int64
	always := false
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if asked.Add(1) > 3 && !always {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		topic, part := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		topic.Topic, topic.TopicID = req.(*kmsg.FetchRequest).Topics[0].Topic, req.(*kmsg.FetchRequest).Topics[0].TopicID
		part.HighWatermark, part.LastStableOffset = 1, 1
		topic.Partitions = append(topic.Partitions, part)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	if n, err := read(); n != 1 || err != nil {
		t.Errorf("%d records, %v", n, err)
	}
	always, opts.Patience = true, 0
	if n, err := read(); n != 0 || err == nil {
		t.Errorf("%d records, %v, want an error", n, err)
	}
}

// Records deleted during a read, and a transaction left open, are errors with the way
// on; both may pass.
func TestReadsThatMayPass(t *testing.T) {
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "open", "short")))(t)
	defer cluster.Close()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("open"), kgo.TransactionalID("writer")))(t)
	defer client.Close()
	must.OK(t, client.BeginTransaction())
	must.OK(t, client.ProduceSync(t.Context(), kgo.StringRecord("event")).FirstErr())
	opts := ReadOptions{Note: func(string) {}}
	for topic, words := range map[string]string{"open": "a transaction is open", "short": "were deleted while they were read"} {
		logs := must.Get(Open(t.Context(), client, topic, opts))(t)
		_, _, err := NewReader(client, logs[0], topic, opts).Read(t.Context(), int64(len(topic)-4))
		if err == nil || failure.ClassOf(err) != failure.Transient || failure.RemedyOf(err) == "" {
			t.Errorf("%v, %v: %s", failure.ClassOf(err), err, failure.RemedyOf(err))
		}
		must.Contain(t, fmt.Sprint(err), words)
	}
	must.OK(t, client.EndTransaction(t.Context(), kgo.TryAbort))
}
