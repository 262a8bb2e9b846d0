package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// missed logs what is known of the events that consumers do not see: where and how
// often they were written, what a new consumer sees there, who leads these
// partitions, and what brokers say of the transaction.
func (k *campaign) missed(ids []string) {
	k.t.Helper()
	spans := map[position]int64{} // from a partition's first missed offset to behind its last
	for i, id := range ids {
		if len(k.reader.Find(id)) > 0 {
			continue
		}
		copies := k.all.Find(id)
		k.t.Logf("event %d of %d, %s, was written %d times", i+1, len(ids), id, len(copies))
		for _, rec := range copies {
			k.t.Logf("  at %d of partition %d of %s", rec.Offset, rec.Partition, rec.Topic)
			widen(spans, rec.Topic, rec.Partition, rec.Offset)
		}
	}
	for n, addr := range k.cluster.Brokers {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			conn.Close()
		}
		k.t.Logf("broker %d, %s: connect: %v", n, addr, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := k.cluster.Client(k.t)
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx, k.topics()...)
	k.t.Logf("topics: %+v (%v)", topics, err)
	transactions, err := admin.DescribeTransactions(ctx, k.transactionalID())
	k.t.Logf("the transaction: %+v (%v)", transactions, err)
	for from, to := range spans {
		k.t.Logf("partition %d of %s, written: %s", from.partition, from.topic, k.span(from, to, kgo.ReadUncommitted()))
		k.t.Logf("partition %d of %s, committed: %s", from.partition, from.topic, k.span(from, to, kgo.ReadCommitted()))
	}
}

// position is an offset of a partition.
type position struct {
	topic     string
	partition int32
	offset    int64
}

// margin is how many records around the missed ones are of interest.
const margin = 20

// widen has a span of the partition include the offset, and what is around it.
func widen(spans map[position]int64, topic string, partition int32, offset int64) {
	for from, to := range spans {
		if from.topic == topic && from.partition == partition && from.offset <= offset && offset <= to+margin {
			spans[from] = max(to, offset+margin)
			return
		}
	}
	spans[position{topic, partition, max(0, offset-margin)}] = offset + margin
}

// span tells what a new consumer sees of a partition: offset, producer id and
// epoch of each record, and of each marker whether it commits.
func (k *campaign) span(from position, to int64, level kgo.IsolationLevel) string {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := k.cluster.Client(k.t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		from.topic: {from.partition: kgo.NewOffset().At(from.offset)},
	}), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords())
	defer client.Close()
	var b strings.Builder
	for next := from.offset; next < to && ctx.Err() == nil; {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if next > to {
				return
			}
			fmt.Fprintf(&b, "%d by %d/%d%s; ", r.Offset, r.ProducerID, r.ProducerEpoch, markerOf(r))
		})
	}
	return b.String()
}

// markerOf names the marker of a transaction; "" for any other record. The key
// has version and type (Kafka, ControlRecordType).
func markerOf(r *kgo.Record) string {
	switch {
	case !r.Attrs.IsControl() || len(r.Key) < 4:
		return ""
	case r.Key[3] == 0:
		return " aborts"
	}
	return " commits"
}
