package admin

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/shadow"
)

// theirTopics reads the topics that Debezium writes to, each round up to the ends that they
// have at its beginning.
type theirTopics struct {
	cluster *cluster
	like    []*regexp.Regexp
	only    string // a topic to be expected; empty: none
	topics  map[string]*theirTopic
	begun   bool
	lost    []string // topics without some of their records, to be told
}

// theirTopic is a topic, as far as read.
type theirTopic struct {
	id        [16]byte
	next      map[int32]int64
	logs      []*kafkalog.Partition // of the round
	compacted bool
}

func newTheirTopics(c *cluster, like []*regexp.Regexp, only string) *theirTopics {
	return &theirTopics{cluster: c, like: like, only: only, topics: make(map[string]*theirTopic)}
}

// begin passes over all records until now.
func (t *theirTopics) begin(ctx context.Context) error {
	if err := t.open(ctx, &shadow.Round{}); err != nil {
		return err
	}
	for _, topic := range t.topics {
		for _, log := range topic.logs {
			_, topic.next[log.Number()] = log.Bounds()
		}
	}
	t.begun = true
	return nil
}

// open finds topics and their ends, for the round. Topics that come later are read from their
// first record on.
func (t *theirTopics) open(ctx context.Context, r *shadow.Round) error {
	all, err := broker.AllTopics(ctx, broker.Impatient{Client: t.cluster.client})
	if err != nil {
		return err
	}
	for _, topic := range all.Topics {
		if name := topic.Topic; name != nil && !topic.IsInternal && (*name == t.only || slices.ContainsFunc(t.like, func(re *regexp.Regexp) bool { return re.MatchString(*name) })) && t.topics[*name] == nil {
			t.topics[*name] = &theirTopic{next: make(map[int32]int64)}
			if err := t.policy(ctx, *name); err != nil {
				return err
			}
		}
	}
	r.Ends = make(map[shadow.Place]int64)
	for name, topic := range t.topics {
		if err := t.openOne(ctx, name, topic, r); err != nil {
			return fmt.Errorf("topic %q: %w", name, err)
		}
	}
	return nil
}

// policy finds out whether the topic is compacted.
func (t *theirTopics) policy(ctx context.Context, name string) error {
	settings, err := broker.TopicSettings(ctx, t.cluster.client, name, "cleanup.policy")
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return nil
	}
	t.topics[name].compacted = err == nil && strings.Contains(settings["cleanup.policy"], "compact")
	return err
}

func (t *theirTopics) openOne(ctx context.Context, name string, topic *theirTopic, r *shadow.Round) error {
	id, logs, err := kafkalog.OpenTopic(ctx, t.cluster.client, name)
	topic.logs = logs
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("%w: %s", err, t.cluster.cfg.Tools().Allow("Read", name))
	case err != nil:
		return err
	case len(logs) == 0: // deleted
		if len(topic.next) > 0 {
			t.lost = append(t.lost, name)
		}
		return nil
	}
	if topic.id != id { // made again, if there was one
		if topic.id != ([16]byte{}) {
			t.lost = append(t.lost, name)
		}
		topic.id, topic.next = id, make(map[int32]int64)
	}
	for _, log := range topic.logs {
		start, end := log.Bounds()
		next, known := topic.next[log.Number()]
		if known && next < start { // retention was faster
			t.lost = append(t.lost, name)
		}
		topic.next[log.Number()] = max(start, next)
		r.Ends[shadow.Place{Topic: name, Partition: log.Number()}] = end
	}
	return nil
}

// names are the topics that exist, sorted.
func (t *theirTopics) names() (names []string) {
	for name, topic := range t.topics {
		if len(topic.logs) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// compacted are the topics that lose records of a key to later ones.
func (t *theirTopics) compacted() (names []string) {
	for _, name := range t.names() {
		if t.topics[name].compacted {
			names = append(names, name)
		}
	}
	return names
}

// read takes the records up to the round's ends, as long as there is room. The error is the
// first of a partition; the others are read.
func (t *theirTopics) read(ctx context.Context, take func([]*kgo.Record) (room bool)) (whole bool, err error) {
	whole = true
	for _, name := range t.names() {
		topic := t.topics[name]
		for _, log := range topic.logs {
			read, failed := topic.read(ctx, log, take)
			if failed != nil && err == nil {
				err = fmt.Errorf("topic %q, partition %d: %w", name, log.Number(), failed)
			}
			whole = whole && read
		}
	}
	return whole, err
}

func (t *theirTopic) read(ctx context.Context, log *kafkalog.Partition, take func([]*kgo.Record) bool) (whole bool, err error) {
	_, end := log.Bounds()
	for next := t.next[log.Number()]; next < end; next = t.next[log.Number()] {
		records, after, err := kafkalog.ReadTo(ctx, log, next, end)
		if err != nil {
			return false, err
		}
		room := take(records)
		t.next[log.Number()] = after
		if !room {
			return after == end, nil
		}
	}
	return true, nil
}
