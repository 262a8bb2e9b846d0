package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
)

// explained is of how many events explain tells: each costs a look at all records.
const explained = 20

// repeated returns the events seen more than once by consumers, among the latest
// records: repetitions come soon.
func (k *campaign) repeated() (ids []string) {
	records := k.reader.Records()
	for _, rep := range checker.Repetitions(records[max(0, len(records)-20_000):]) {
		ids = append(ids, rep.Event)
	}
	return ids
}

// explain logs, for the first events only: where and how often they were written,
// a new consumer's view, the partitions' leaders, the brokers' state of the
// transaction, and everything written at the time.
func (k *campaign) explain(ids []string) {
	k.t.Helper()
	k.t.Logf("%d events", len(ids))
	ids = ids[:min(len(ids), explained)]
	var first time.Time           // of the records
	spans := map[position]int64{} // from a partition's first offset of them to behind the last
	for i, id := range ids {
		copies := k.all.Find(id)
		k.t.Logf("event %d of %d, %s, was written %d times", i+1, len(ids), id, len(copies))
		for _, rec := range copies {
			k.t.Logf("  at %d of partition %d of %s", rec.Offset, rec.Partition, rec.Topic)
			widen(spans, rec.Topic, rec.Partition, rec.Offset)
			if first.IsZero() || rec.Timestamp.Before(first) {
				first = rec.Timestamp
			}
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
		k.t.Logf("partition %d of %s, committed: %s", from.partition, from.topic, k.span(from, to, kgo.ReadCommitted()))
	}
	if !first.IsZero() {
		k.timeline(ctx, admin, first)
	}
}

// timeline logs everything written to all partitions, checkpoints and the
// coordinators' log included, from 5 seconds before a time to 20 seconds
// afterwards.
func (k *campaign) timeline(ctx context.Context, admin *kadm.Client, around time.Time) {
	k.t.Helper()
	topics := append(k.topics(), k.checkpoints(), coordinatorsLog)
	starts, err := admin.ListOffsetsAfterMilli(ctx, around.Add(-5*time.Second).UnixMilli(), topics...)
	if err != nil {
		k.t.Logf("timeline: %v", err)
		return
	}
	stops, err := admin.ListOffsetsAfterMilli(ctx, around.Add(20*time.Second).UnixMilli(), topics...)
	if err != nil {
		k.t.Logf("timeline: %v", err)
		return
	}
	starts.Each(func(start kadm.ListedOffset) {
		stop, ok := stops.Lookup(start.Topic, start.Partition)
		if ok && start.Offset < stop.Offset {
			from := position{start.Topic, start.Partition, start.Offset}
			k.t.Logf("partition %d of %s, written: %s", from.partition, from.topic, k.span(from, stop.Offset, kgo.ReadUncommitted()))
		}
	})
}

const coordinatorsLog = "__transaction_state"

// about is a record's content: the end of a transaction, the state of a
// transaction, a checkpoint, or an event's headers.
func (k *campaign) about(r *kgo.Record) string {
	switch {
	case r.Attrs.IsControl():
		var key kmsg.ControlRecordKey
		var marker kmsg.EndTxnMarker
		if err := errors.Join(key.ReadFrom(r.Key), marker.ReadFrom(r.Value)); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%v by coordinator epoch %d", key.Type, marker.CoordinatorEpoch)
	case r.Topic == coordinatorsLog:
		var value kmsg.TxnMetadataValue
		if err := value.ReadFrom(r.Value); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%+v", value)
	case r.Topic == k.checkpoints():
		return string(r.Value)
	}
	var b strings.Builder
	for _, h := range r.Headers {
		fmt.Fprintf(&b, "%s=%q ", h.Key, h.Value)
	}
	return b.String()
}

// position is an offset of a partition.
type position struct {
	topic     string
	partition int32
	offset    int64
}

// margin is the number of neighbours logged on either side of a record.
const margin = 20

// widen has a span of the partition include the offset and the neighbours.
func widen(spans map[position]int64, topic string, partition int32, offset int64) {
	for from, to := range spans {
		if from.topic == topic && from.partition == partition && from.offset <= offset && offset <= to+margin {
			spans[from] = max(to, offset+margin)
			return
		}
	}
	spans[position{topic, partition, max(0, offset-margin)}] = offset + margin
}

// span tells a new consumer's view of a partition: offset, time, producer id,
// epoch and content of each record.
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
			fmt.Fprintf(&b, "\n%d %s %d/%d %s", r.Offset, r.Timestamp.UTC().Format("15:04:05.000"), r.ProducerID, r.ProducerEpoch, k.about(r))
		})
	}
	return b.String()
}
