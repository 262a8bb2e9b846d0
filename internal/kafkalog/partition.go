package kafkalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrOpenTransaction is wrapped by the error of a read of what is committed while a
// transaction is open before the log's end. It has no class: it ends when the
// transaction does.
var ErrOpenTransaction = errors.New("a transaction is open in it, so that its last records are not known yet")

// Partition is a Log of Kafka. It reads with plain fetch requests. A consumer does not
// say when it has passed a gap or a marker at the end of the log, so "nothing there"
// and "not yet" would look the same.
type Partition struct {
	client     *kgo.Client
	detail     kadm.TopicDetail // of its topic
	number     int32
	start, end int64
	raw        bool
}

// Open finds leaders and bounds of partitions of a topic. The end is the high watermark.
// The client stays the caller's.
func Open(ctx context.Context, client *kgo.Client, topic string, partitions ...int32) ([]*Partition, error) {
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		if err := Usable(topics[topic], p); err != nil {
			return nil, err
		}
	}
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	var logs []*Partition
	for _, p := range partitions {
		l := &Partition{client: client, detail: topics[topic], number: p}
		if l.start, err = l.offset(starts); err != nil {
			return nil, err
		}
		if l.end, err = l.offset(ends); err != nil {
			return nil, err
		}
		logs = append(logs, l)
	}
	return logs, nil
}

// Usable is why a partition cannot be read now.
func Usable(topic kadm.TopicDetail, partition int32) error {
	switch p, ok := topic.Partitions[partition]; {
	case topic.Topic == "":
		return kerr.UnknownTopicOrPartition
	case topic.Err != nil:
		return topic.Err
	case !ok:
		return kerr.UnknownTopicOrPartition
	default:
		return p.Err
	}
}

func (l *Partition) offset(listed kadm.ListedOffsets) (int64, error) {
	offset, ok := listed.Lookup(l.detail.Topic, l.number)
	if !ok {
		return 0, kerr.UnknownTopicOrPartition
	}
	return offset.Offset, offset.Err
}

// Raw returns the same log with the markers of transactions' ends, and with what is
// not committed.
func (l *Partition) Raw() *Partition {
	raw := *l
	raw.raw = true
	return &raw
}

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
		Topic:          l.detail.Topic,
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

// fetch asks the partition's leader for one response, without waiting for more
// records to come.
func (l *Partition) fetch(ctx context.Context, from int64) (*kmsg.FetchResponse, error) {
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition = l.number
	part.FetchOffset = from
	part.PartitionMaxBytes = 1 << 20
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = l.detail.Topic
	topic.TopicID = l.detail.ID
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrFetchRequest()
	if !l.raw {
		req.IsolationLevel = 1 // read committed
	}
	req.MaxBytes = 1 << 20
	req.Topics = append(req.Topics, topic)

	leader := l.client.Broker(int(l.detail.Partitions[l.number].Leader))
	r, err := leader.RetriableRequest(ctx, req)
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

// Commits reports whether a marker is that of a commit.
func Commits(marker *kgo.Record) bool {
	var key kmsg.ControlRecordKey
	return key.ReadFrom(marker.Key) == nil && key.Type == kmsg.ControlRecordKeyTypeCommit
}
