package kafkalog

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A broker answers a client over the quota without any topic.
func TestReadGoesOnAfterAnAnswerOverTheQuota(t *testing.T) {
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t")))(t)
	defer cluster.Close()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("t")))(t)
	defer client.Close()
	must.OK(t, client.ProduceSync(t.Context(), kgo.StringRecord("event")).FirstErr())
	log := must.Get(Open(t.Context(), client, "t", 0))(t)[0]
	var throttled atomic.Bool
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		throttled.Store(true)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.ThrottleMillis = 1
		return resp, nil, true
	})
	records := must.Get(Scan(t.Context(), log, 0, 1, func(*kgo.Record) bool { return true }))(t)
	if len(records) != 1 || !throttled.Load() {
		t.Errorf("%d records, throttled: %t", len(records), throttled.Load())
	}
}
