package sink

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
)

// mostEnds bounds the partitions in a checkpoint, to the topics written to last. An end
// has about eight bytes there.
const mostEnds = 2000

// comparePatience bounds the comparison at a start. Ends without an answer by
// then are compared with the next write: see believe.
var comparePatience = 5 * time.Second

// comparedAtOnce is the number of topics compared at a time.
const comparedAtOnce = 8

// text is the id's form in a checkpoint.
func (id topicID) text() string {
	if id == (topicID{}) {
		return ""
	}
	return id.String()
}

// parseTopicID reads text; an unreadable id is zero.
func parseTopicID(text string) (id topicID) {
	if b, err := base64.RawURLEncoding.DecodeString(text); err == nil && len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

// Ends are the known ends of topics, without markers that brokers may not have written yet:
// markers are no events. Ends may be called beside Deliver. The result is the caller's.
func (k *Kafka) Ends() checkpoint.Ends {
	k.ledger.Lock()
	defer k.ledger.Unlock()
	last := slices.SortedFunc(maps.Keys(k.acked), func(a, b string) int {
		return cmp.Or(cmp.Compare(k.acked[b].used, k.acked[a].used), cmp.Compare(a, b))
	})
	all, room := make(checkpoint.Ends), mostEnds
	for _, topic := range last {
		a := k.acked[topic]
		if room -= len(a.ends); room < 0 {
			break
		}
		if len(a.ends) == 0 {
			continue
		}
		t := checkpoint.TopicEnds{ID: a.id.text(), To: make([]int64, len(a.ends))}
		for partition, end := range a.ends {
			t.To[partition] = end.offset - end.marker
		}
		all[topic] = t
	}
	return all
}

// Compare compares the ends of a checkpoint with the brokers' present ends. Only the first
// call does anything. Compared ends also count as acknowledged from now on, so a partition
// without an answer yet is compared at the next write.
func (k *Kafka) Compare(ctx context.Context, ends checkpoint.Ends) error {
	if k.compared {
		return nil
	}
	k.compared = true
	if len(ends) == 0 {
		return nil
	}
	c := CompareEnds(ctx, k.client, ends)
	k.ledger.Lock()
	for topic, t := range ends {
		a := &acked{id: parseTopicID(t.ID), ends: make([]end, len(t.To))}
		for partition, offset := range t.To {
			a.ends[partition].offset = offset
		}
		k.acked[topic] = a
	}
	for _, topic := range c.Gone {
		delete(k.acked, topic)
	}
	k.ledger.Unlock()
	for topic, id := range c.remade {
		k.remade(topic, k.acked[topic], id)
	}
	if len(c.Gone) > 0 {
		k.log.Warn("topics that events were published to do not exist any more: events that consumers had not read there are gone",
			zap.Strings("topics", c.Gone),
			zap.String("remedy", "if they were not meant to be deleted: publish again from the outbox table the events that consumers have not read"))
	}
	if c.Untold != nil {
		k.log.Warn("brokers do not tell yet whether they have all that they had acknowledged; what is missing shows when it is written to", zap.Error(c.Untold))
	}
	return c.Loss(k.cfg)
}

// Ends is that of Kafka. It may be called at any time before Close.
func (x *Transactions) Ends() checkpoint.Ends { return x.k.Ends() }

// Compare compares the acknowledged ends in the checkpoint with the brokers' present ends.
// Call it once, after Claim.
func (x *Transactions) Compare(ctx context.Context, ends checkpoint.Ends) error {
	leave, err := x.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	ctx, release := x.k.connections.guard(ctx)
	defer release()
	return x.k.stop(ctx, x.k.Compare(ctx, ends))
}

// LostEnd is a partition whose log ends before an acknowledged end.
type LostEnd struct {
	Topic     string
	Partition int32
	Had, Has  int64 // ends of the log
	id        topicID
}

// Comparison is the result of CompareEnds.
type Comparison struct {
	Lost   []LostEnd
	Gone   []string // topics that do not exist any more
	remade map[string]topicID
	Untold error // why some ends are not known; nil: all are

	mu  sync.Mutex
	now checkpoint.Ends
}

// CompareEnds compares ends with the logs of the topics, within a few seconds.
func CompareEnds(ctx context.Context, client *kgo.Client, ends checkpoint.Ends) *Comparison {
	ctx, cancel := context.WithTimeout(ctx, comparePatience)
	defer cancel()
	c := &Comparison{remade: make(map[string]topicID), now: ends.Clone()}
	var (
		topics sync.WaitGroup
		turn   = make(chan struct{}, comparedAtOnce)
	)
	for topic, t := range ends {
		topics.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			c.topic(ctx, client, topic, t)
		})
	}
	topics.Wait()
	slices.SortFunc(c.Lost, func(a, b LostEnd) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	slices.Sort(c.Gone)
	return c
}

// topic compares a single topic. It asks again while some partitions have no leader,
// or brokers do not answer.
func (c *Comparison) topic(ctx context.Context, client *kgo.Client, topic string, was checkpoint.TopicEnds) {
	retry := backoff.Series{Range: waits}
	var unknown broker.Unknown
	for {
		id, now, err := kafkalog.Ends(ctx, client, topic)
		gone := errors.Is(err, kerr.UnknownTopicOrPartition) && unknown.Missing()
		passing := err == nil && len(now) < len(was.To) || err != nil && broker.MayPass(err) && !gone
		if passing && retry.Pause(ctx) == nil {
			continue
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case gone:
			c.Gone = append(c.Gone, topic)
			delete(c.now, topic)
		case err != nil:
			c.Untold = errors.Join(c.Untold, fmt.Errorf("topic %q: %w", topic, err))
		default:
			c.judge(topic, was, topicID(id), now)
		}
		return
	}
}

// judge compares a topic with the brokers' answer.
func (c *Comparison) judge(topic string, was checkpoint.TopicEnds, id topicID, now map[int32]int64) {
	former := parseTopicID(was.ID)
	if id.other(former) {
		c.remade[topic] = id
		delete(c.now, topic)
		return
	}
	for partition, had := range was.To {
		has, ok := now[int32(partition)]
		switch {
		case had == 0:
		case !ok:
			c.Untold = errors.Join(c.Untold, fmt.Errorf("topic %q, partition %d: %w", topic, partition, kerr.LeaderNotAvailable))
		case has < had:
			c.Lost = append(c.Lost, LostEnd{topic, int32(partition), had, has, former})
			c.now[topic].To[partition] = has
		}
	}
}

// Now are the ends for the time after an accepted loss.
func (c *Comparison) Now() checkpoint.Ends { return c.now }

// mostLost bounds the partitions named in a message.
const mostLost = 20

// Loss is the error of the lost records; nil: none are known.
func (c *Comparison) Loss(cfg Options) error {
	if len(c.Lost) == 0 {
		return nil
	}
	first := c.Lost[0]
	var others []string
	for _, l := range c.Lost[1:min(len(c.Lost), mostLost)] {
		others = append(others, fmt.Sprintf("; topic %q, partition %d: offsets %d to %d", l.Topic, l.Partition, l.Has, l.Had-1))
	}
	if more := len(c.Lost) - mostLost; more > 0 {
		others = append(others, fmt.Sprintf("; and %d partitions more", more))
	}
	return failure.Lossf(lostRemedy(cfg, first.Topic, first.Partition, first.Has),
		"while no connector was running, brokers have lost records that they had acknowledged: "+
			"topic %q, partition %d had records up to offset %d, and its log ends at offset %d now, so that up to %d events are missing there, those at offsets %d to %d%s. %s",
		first.Topic, first.Partition, first.Had-1, first.Has, first.Had-first.Has, first.Has, first.Had-1, strings.Join(others, ""), likely(first.id))
}
