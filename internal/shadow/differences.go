package shadow

import (
	"bytes"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/sink"
)

// runID is Debezium's header with a random value for each start.
const runID = "__debezium.context.runId"

// stable are the headers that a repetition has, too.
func stable(headers []kgo.RecordHeader) []kgo.RecordHeader {
	if !slices.ContainsFunc(headers, func(h kgo.RecordHeader) bool { return h.Key == runID }) {
		return headers
	}
	return slices.DeleteFunc(slices.Clone(headers), func(h kgo.RecordHeader) bool { return h.Key == runID })
}

// differing names the parts in which Debezium's record differs from ours: topic, key, value,
// "header NAME", "order of headers", partition, time, or those of numbered.
func (c *Comparison) differing(ours, theirs *kgo.Record) (parts []string) {
	differ := func(part string, is bool) {
		if is {
			parts = append(parts, part)
		}
	}
	differ("topic", ours.Topic != theirs.Topic)
	differ(numbered("key", c.opts.FramedKeys, ours.Key, theirs.Key), !alike(ours.Key, theirs.Key))
	differ(numbered("value", c.opts.FramedValues, ours.Value, theirs.Value), !alike(ours.Value, theirs.Value))
	parts = append(parts, headers(ours.Headers, stable(theirs.Headers))...)
	differ("partition", ours.Topic == theirs.Topic && !placed(ours, theirs.Partition, c.counts[theirs.Topic]))
	byProducer := theirs.Attrs.TimestampType() == 0 // else the broker has written its own time
	differ("time", byProducer && !ours.Timestamp.IsZero() && ours.Timestamp.UnixMilli() != theirs.Timestamp.UnixMilli())
	return parts
}

func headers(ours, theirs []kgo.RecordHeader) (parts []string) {
	same := func(a, b kgo.RecordHeader) bool { return a.Key == b.Key && alike(a.Value, b.Value) }
	if slices.EqualFunc(ours, theirs, same) {
		return nil
	}
	values := func(all []kgo.RecordHeader, name string) (found [][]byte) {
		for _, h := range all {
			if h.Key == name {
				found = append(found, h.Value)
			}
		}
		return found
	}
	var names []string
	for _, h := range slices.Concat(ours, theirs) {
		if !slices.Contains(names, h.Key) {
			names = append(names, h.Key)
		}
	}
	for _, name := range names {
		if !slices.EqualFunc(values(ours, name), values(theirs, name), alike) {
			parts = append(parts, "header "+name)
		}
	}
	if parts == nil {
		return []string{"order of headers"}
	}
	return parts
}

// placed tells whether the partition is ours, too. A record without a key may be anywhere.
// While the number of partitions grows, producers still go by the former.
func placed(ours *kgo.Record, partition int32, counts []int) bool {
	switch {
	case ours.Partition >= 0:
		return ours.Partition == partition
	case ours.Key == nil:
		return true
	}
	return slices.ContainsFunc(counts, func(n int) bool { return sink.PartitionOf(ours.Key, n) == partition })
}

// alike tells a null from an empty text.
func alike(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
