package sink

import (
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A mark has the number of the transaction's records in each partition, and an
// offset before them: the end before the claim, then the end of the claim's
// commits, or the present end, if the last commit is a while ago. A partition
// without a leader is asked for again, and so is a new partition.
func TestMarkSaysWhereItsTransactionIs(t *testing.T) {
	c, x := startTransactions(t, 2)
	other := c.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must.OK(t, other.ProduceSync(deadline(t), &kgo.Record{Topic: "t", Partition: 1}, &kgo.Record{Topic: "t", Partition: 1}).FirstErr())
	var refusals atomic.Int32
	refusals.Store(3)
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if refusals.Load() == 0 {
			return nil, nil, false
		}
		refusals.Add(-1)
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, topic := range req.(*kmsg.ListOffsetsRequest).Topics {
			answer := kmsg.ListOffsetsResponseTopic{Topic: topic.Topic}
			for _, p := range topic.Partitions {
				answer.Partitions = append(answer.Partitions, kmsg.ListOffsetsResponseTopicPartition{
					Partition: p.Partition, ErrorCode: kerr.LeaderNotAvailable.Code, Offset: -1, LeaderEpoch: -1,
				})
			}
			resp.Topics = append(resp.Topics, answer)
		}
		return resp, nil, true
	})
	want := func(parts map[int32]checkpoint.Part, partitions ...int32) {
		t.Helper()
		var entries []Entry
		for i, p := range partitions {
			entries = append(entries, Entry{Event: event("t", "a", p, i)})
		}
		rounds, _, err := x.plan(deadline(t), entries)
		must.OK(t, err)
		rounds = must.Get(x.withMark(deadline(t), rounds, mark("m")))(t)
		last := rounds[len(rounds)-1]
		headers := last[len(last)-1].Record.Headers
		if got := must.Get(checkpoint.ParseWritten(headers[len(headers)-2].Value))(t); !maps.Equal(got["t"], parts) || len(got) != 1 {
			t.Errorf("%v, want %v", got, parts)
		}
		if refused, err := x.Transact(deadline(t), entries, mark("m")); err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
	}
	want(map[int32]checkpoint.Part{0: {Records: 1}, 1: {Records: 2, From: 2}}, 0, 1, 1)
	want(map[int32]checkpoint.Part{0: {Records: 1, From: 2}, 1: {Records: 1, From: 5}}, 0, 1)
	known := x.k.acked["t"].ends
	must.OK(t, other.ProduceSync(deadline(t), &kgo.Record{Topic: "t", Partition: 0}, &kgo.Record{Topic: "t", Partition: 1}).FirstErr())
	known[0].noted = time.Now().Add(-endAge)
	want(map[int32]checkpoint.Part{0: {Records: 1, From: 5}}, 0) // or many records of others would have to be read
	want(map[int32]checkpoint.Part{1: {Records: 1, From: 8}}, 1)
	before := known[0].offset
	x.noteEnd(x.k.acked["t"], 0, 1) // the lower answer of a former leader
	want(map[int32]checkpoint.Part{0: {Records: 1, From: before}}, 0)
	must.OK(t, other.ProduceSync(deadline(t), &kgo.Record{Topic: "t", Partition: 1}).FirstErr())
	known[1].noted = time.Now().Add(-endAge)
	refusals.Store(1)
	want(map[int32]checkpoint.Part{1: {Records: 1, From: 10}}, 1) // an old end is better than a wait for a new one
	c.growTopic(t, "t", 3)
	want(map[int32]checkpoint.Part{2: {Records: 1}}, 2)
}
