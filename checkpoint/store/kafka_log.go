package store

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// log is one partition as it was when it was opened.
type log interface {
	// bounds are the first offset and the one after the last.
	bounds() (start, end int64)
	// read returns records at or after offset from, and the offset to go on
	// from: it passes over what compaction removed, transaction markers and
	// aborted records. next == from means that nothing follows.
	read(ctx context.Context, from int64) (records []*kgo.Record, next int64, err error)
}

// firstWindow is how many offsets at the end of the log are read first. If the
// key is not among them, windowGrowth times as many are read, and so on. The
// checkpoint of a busy connector is in the first window. That of an idle one
// beside it is found in a few more reads.
const (
	firstWindow  = 128
	windowGrowth = 8
)

// newest returns, in order, the wanted records in the last window of the log that
// has any. So it has at least the last one, and those around it, which a connector
// that had lost the slot may have written.
func newest(ctx context.Context, l log, wanted func(*kgo.Record) bool) ([]*kgo.Record, error) {
	start, end := l.bounds()
	for window, hi := int64(firstWindow), end; hi > start; window *= windowGrowth {
		lo := max(start, end-window)
		found, err := scan(ctx, l, lo, hi, wanted)
		if err != nil || len(found) > 0 {
			return found, err
		}
		hi = lo
	}
	return nil, nil
}

// scan returns the wanted records in [lo, hi).
func scan(ctx context.Context, l log, lo, hi int64, wanted func(*kgo.Record) bool) (found []*kgo.Record, err error) {
	for lo < hi {
		records, next, err := l.read(ctx, lo)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			if r.Offset < hi && wanted(r) {
				found = append(found, r)
			}
		}
		if next == lo {
			return found, nil
		}
		lo = next
	}
	return found, nil
}

// kafkaLog reads with plain fetch requests. A consumer does not say when it has
// passed a gap or a marker at the end of the log, so "nothing there" and "not
// yet" would look the same.
type kafkaLog struct {
	client     *kgo.Client
	detail     kadm.TopicDetail
	start, end int64
	raw        bool // with markers, and what is not committed
}

// openLog finds leader and bounds of the topic's partition.
func (k *kafka) openLog(ctx context.Context, topic string, raw bool) (*kafkaLog, error) {
	detail, err := k.describe(ctx, topic)
	if err != nil {
		return nil, err
	}
	l := &kafkaLog{client: k.client, detail: detail, raw: raw}
	starts, err := k.admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := k.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	for _, bound := range []struct {
		offsets kadm.ListedOffsets
		to      *int64
	}{{starts, &l.start}, {ends, &l.end}} {
		listed, ok := bound.offsets.Lookup(topic, 0)
		if !ok {
			return nil, kerr.UnknownTopicOrPartition
		}
		if listed.Err != nil {
			return nil, listed.Err
		}
		*bound.to = listed.Offset
	}
	return l, nil
}

func (l *kafkaLog) bounds() (start, end int64) { return l.start, l.end }

func (l *kafkaLog) read(ctx context.Context, from int64) (records []*kgo.Record, next int64, err error) {
	for {
		resp, err := l.fetch(ctx, from)
		if err != nil {
			return nil, from, fmt.Errorf("fetch offset %d: %w", from, err)
		}
		part := &resp.Topics[0].Partitions[0]
		if len(part.RecordBatches) == 0 && resp.ThrottleMillis > 0 {
			continue // over a quota: the client waits, and the next answer has data
		}
		if stable := part.LastStableOffset; !l.raw && stable >= 0 && stable < l.end {
			return nil, from, fmt.Errorf("%w, since offset %d", ErrOpenTransaction, stable)
		}
		return l.parse(part, from)
	}
}

func (l *kafkaLog) parse(part *kmsg.FetchResponseTopicPartition, from int64) ([]*kgo.Record, int64, error) {
	opts := kgo.ProcessFetchPartitionOpts{
		Offset:         from,
		IsolationLevel: kgo.ReadCommitted(),
		Topic:          l.detail.Topic,
		Partition:      0,
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
func (l *kafkaLog) fetch(ctx context.Context, from int64) (*kmsg.FetchResponse, error) {
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition = 0
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

	leader := l.client.Broker(int(l.detail.Partitions[0].Leader))
	r, err := leader.RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := r.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("the broker answered for %d topics instead of 1", len(resp.Topics))
	}
	return resp, nil
}
