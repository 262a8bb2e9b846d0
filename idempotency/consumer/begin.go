package consumer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A commit names the topic's id: Kafka before 4.4 takes an offset by the
// topic's name, and would keep the old topic's offset for the new topic.
const topicMark = "topic="

// marked has the commits of a context name the ids of their topics.
func (w *topicWatch) marked(ctx context.Context) context.Context {
	return kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for i := range req.Topics {
			t := &req.Topics[i]
			id := w.id(t.Topic)
			if id == (topicID{}) {
				continue
			}
			text := topicMark + id.String()
			for j := range t.Partitions {
				t.Partitions[j].Metadata = &text
			}
		}
		return nil
	})
}

// beginnings decide where the consumption of newly assigned partitions begins.
// The client calls both functions in turn, on a single goroutine.
type beginnings struct {
	*session
	answer *kmsg.OffsetFetchResponse
}

func (b *beginnings) fetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	b.answer = resp
	return nil
}

// adjust changes two beginnings that would pass over records: an offset of a
// former topic, and the end, where the group has no offset of a new partition.
func (b *beginnings) adjust(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	ids, err := b.currentIDs(ctx, slices.Collect(maps.Keys(offsets)))
	if err != nil {
		return nil, err
	}
	names := map[topicID]string{}
	for topic, id := range ids {
		names[id] = topic
	}
	for g := range b.answer.Groups {
		for i := range b.answer.Groups[g].Topics {
			t := &b.answer.Groups[g].Topics[i]
			if t.Topic == "" {
				t.Topic = names[t.TopicID]
			}
			b.discard(t, ids[t.Topic], offsets[t.Topic])
		}
	}
	return offsets, b.pin(ctx, offsets)
}

// discard begins anew where the offset is another topic's of the same name.
func (b *beginnings) discard(t *kmsg.OffsetFetchResponseGroupTopic, id topicID, offsets map[int32]kgo.Offset) {
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if _, ok := offsets[p.Partition]; !ok || p.Offset < 0 || p.Metadata == nil {
			continue
		}
		of, ok := strings.CutPrefix(*p.Metadata, topicMark)
		if !ok || id == (topicID{}) || of == id.String() {
			continue
		}
		b.cfg.Logger.Error("the topic was deleted and created again: the partition is consumed from its beginning",
			"topic", t.Topic, "partition", p.Partition, "offset", p.Offset, "topic_before", of, "topic_id", id.String(),
			"remedy", "what was not consumed of the topic before is lost; if it was not meant, see what deleted it")
		offsets[p.Partition] = kgo.NewOffset().AtStart()
	}
}

// atEnd is where a group without offsets begins, if the client's options say so.
const atEnd = -1

// pin notes the end where a group begins there (kgo.ConsumeResetOffset), as its
// first offset. Otherwise records arriving while the partition is with nobody
// would be passed over. A new partition begins at the start in a group with
// offsets of the topic.
func (b *beginnings) pin(ctx context.Context, offsets map[string]map[int32]kgo.Offset) error {
	var topics []string
	for topic, partitions := range offsets {
		for _, o := range partitions {
			if o.EpochOffset().Offset == atEnd {
				topics = append(topics, topic)
				break
			}
		}
	}
	if len(topics) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	admin := kadm.NewClient(b.client)
	known, err := admin.FetchOffsets(ctx, b.cfg.Group)
	if err != nil {
		return fmt.Errorf("ask for the group's offsets: %w", err)
	}
	ends, err := admin.ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return fmt.Errorf("ask for the topics' ends: %w", err)
	}
	for _, topic := range topics {
		for partition, o := range offsets[topic] {
			if o.EpochOffset().Offset != atEnd {
				continue
			}
			if len(known[topic]) > 0 {
				b.cfg.Logger.Warn("the group has offsets of the topic's other partitions: this one is new, and consumed from its beginning",
					"topic", topic, "partition", partition)
				offsets[topic][partition] = kgo.NewOffset().AtStart()
				continue
			}
			if end, ok := ends.Lookup(topic, partition); ok && end.Err == nil {
				offsets[topic][partition] = kgo.NewOffset().At(end.Offset)
				b.scheduler.begin(partitionID{topic, partition}, kgo.EpochOffset{Epoch: end.LeaderEpoch, Offset: end.Offset})
			}
		}
	}
	return nil
}
