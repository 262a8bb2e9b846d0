package kafkalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrOpenTransaction is wrapped by the error of a read of committed records
// while a transaction is open before the log's end. It has no class: it is over
// with the transaction.
var ErrOpenTransaction = errors.New("a transaction is open in it, so that its last records are not known yet")

// Partition is a Log of Kafka. Partition reads with plain fetch requests. A
// consumer does not tell of a passed gap or marker at the end of the log, so
// "nothing there" and "not yet" would look the same.
type Partition struct {
	client     *kgo.Client
	topic      string
	id         [16]byte
	number     int32
	leader     Leader // asked for everything, in its epoch
	start, end int64
	raw        bool
}

// OpenTopic is Open for all partitions, with the topic's id, which old brokers do not tell.
// There are none of a topic that does not exist.
func OpenTopic(ctx context.Context, client *kgo.Client, topic string) (id [16]byte, logs []*Partition, err error) {
	described, err := Describe(ctx, client, topic)
	if err == nil {
		err = described.Err
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return id, nil, nil
	case err != nil:
		return id, nil, err
	}
	logs, err = Open(ctx, client, topic, slices.Sorted(maps.Keys(described.Leaders))...)
	return described.ID, logs, err
}

// Open finds leaders and bounds of partitions of a topic. The end is the high
// watermark. The client stays the caller's. Everything is read from the leader
// in the latest epoch known to any broker: a leader that knows another epoch
// refuses.
func Open(ctx context.Context, client *kgo.Client, topic string, partitions ...int32) ([]*Partition, error) {
	known, err := newest(ctx, client, topic)
	if err != nil {
		return nil, err
	}
	var logs []*Partition
	led := make(map[int32][]*Partition)
	for _, p := range partitions {
		if err := known.Usable(p); err != nil {
			return nil, err
		}
		l := &Partition{client: client, topic: topic, id: known.ID, number: p, leader: known.Leaders[p]}
		logs = append(logs, l)
		led[l.leader.Node] = append(led[l.leader.Node], l)
	}
	for _, logs := range led {
		if err := bound(ctx, logs); err != nil {
			return nil, err
		}
	}
	return logs, nil
}

// The timestamps standing for the ends of a log in requests for offsets.
const (
	atStart = -2
	atEnd   = -1
)

// bound finds the bounds of partitions with the same leader.
func bound(ctx context.Context, logs []*Partition) error {
	starts, err := offsets(ctx, logs, atStart)
	if err != nil {
		return err
	}
	ends, err := offsets(ctx, logs, atEnd)
	if err != nil {
		return err
	}
	for _, l := range logs {
		l.start, l.end = starts[l.number], ends[l.number]
	}
	return nil
}

// Since returns, by partition, the first offset of a record with the time or a
// later one, and the end of a log without any. Records behind it may have earlier
// times; those before it have.
func Since(ctx context.Context, logs []*Partition, at time.Time) (map[int32]int64, error) {
	led := make(map[int32][]*Partition)
	for _, l := range logs {
		led[l.leader.Node] = append(led[l.leader.Node], l)
	}
	since := make(map[int32]int64)
	for _, logs := range led {
		listed, err := offsets(ctx, logs, at.UnixMilli())
		if err != nil {
			return nil, err
		}
		for _, l := range logs {
			since[l.number] = listed[l.number]
			if since[l.number] < 0 {
				since[l.number] = l.end
			}
		}
	}
	return since, nil
}

// offsets asks the leader of the partitions for an offset of each.
func offsets(ctx context.Context, logs []*Partition, at int64) (map[int32]int64, error) {
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = logs[0].topic
	for _, l := range logs {
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.CurrentLeaderEpoch, part.Timestamp = l.number, l.leader.Epoch, at
		topic.Partitions = append(topic.Partitions, part)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Topics = append(req.Topics, topic)
	r, err := logs[0].ask(ctx, req)
	if err != nil {
		return nil, err
	}
	listed := make(map[int32]int64)
	for _, t := range r.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, err
			}
			listed[p.Partition] = p.Offset
		}
	}
	if len(listed) != len(logs) {
		return nil, kerr.UnknownTopicOrPartition
	}
	return listed, nil
}

// Raw returns the same log with the markers of transactions' ends, and with
// uncommitted records.
func (l *Partition) Raw() *Partition {
	raw := *l
	raw.raw = true
	return &raw
}

// Number is the partition's.
func (l *Partition) Number() int32 { return l.number }

// Bounds implements Log.
func (l *Partition) Bounds() (start, end int64) { return l.start, l.end }

// Read implements Log.
func (l *Partition) Read(ctx context.Context, from int64) (records []*kgo.Record, next int64, err error) {
	for {
		resp, err := l.fetch(ctx, from)
		if err != nil {
			return nil, from, fmt.Errorf("fetch offset %d: %w", from, err)
		}
		var part kmsg.FetchResponseTopicPartition
		if len(resp.Topics) > 0 {
			part = resp.Topics[0].Partitions[0]
		}
		if len(part.RecordBatches) == 0 && resp.ThrottleMillis > 0 {
			continue // over a quota: the client waits, and the next answer has data
		}
		if stable := part.LastStableOffset; !l.raw && stable >= 0 && stable < l.end {
			return nil, from, fmt.Errorf("%w, since offset %d", ErrOpenTransaction, stable)
		}
		return l.parse(&part, from)
	}
}

func (l *Partition) parse(part *kmsg.FetchResponseTopicPartition, from int64) ([]*kgo.Record, int64, error) {
	opts := kgo.ProcessFetchPartitionOpts{
		Offset:         from,
		IsolationLevel: kgo.ReadCommitted(),
		Topic:          l.topic,
		Partition:      l.number,
	}
	if l.raw {
		opts.IsolationLevel, opts.KeepControlRecords = kgo.ReadUncommitted(), true
	}
	fetched, next := kgo.ProcessFetchPartition(opts, part, kgo.DefaultDecompressor(), nil)
	if fetched.Err != nil {
		return nil, from, fmt.Errorf("read offset %d: %w", from, fetched.Err)
	}
	if next == from && len(part.RecordBatches) > 0 {
		return nil, from, fmt.Errorf("read offset %d: the broker sent no whole batch", from)
	}
	return fetched.Records, next, nil
}

// fetch asks the partition's leader for a response, without a wait for further
// records.
func (l *Partition) fetch(ctx context.Context, from int64) (*kmsg.FetchResponse, error) {
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition = l.number
	part.CurrentLeaderEpoch = l.leader.Epoch
	part.FetchOffset = from
	part.PartitionMaxBytes = 1 << 20
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = l.topic
	topic.TopicID = l.id
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrFetchRequest()
	if !l.raw {
		req.IsolationLevel = 1 // read committed
	}
	req.MaxBytes = 1 << 20
	req.Topics = append(req.Topics, topic)

	r, err := l.ask(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := r.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) == 0 && resp.ThrottleMillis > 0 {
		return resp, nil
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("the broker answered for %d topics instead of 1", len(resp.Topics))
	}
	return resp, nil
}

// Commits reports whether a marker is a commit's.
func Commits(marker *kgo.Record) bool {
	var key kmsg.ControlRecordKey
	return key.ReadFrom(marker.Key) == nil && key.Type == kmsg.ControlRecordKeyTypeCommit
}
