package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// Use is a pipeline's use of a topic: it writes there.
type Use struct {
	Topic string
	// Read: the pipeline also reads the topic, and creates it at the start.
	Read bool
	// Optional: the pipeline goes on while the topic is missing.
	Optional bool
	// Letters is set for the topic of dead letters.
	Letters bool
}

// EventUse is the use of a topic for events.
func EventUse(cfg Options, topic string) Use {
	return Use{Topic: topic, Optional: missingPolicy(cfg) != missingWait}
}

const (
	// usedLately is how long a topic counts as in use after its last event: a topic no
	// longer needed may be deleted.
	usedLately = 24 * time.Hour
	// mostWatched bounds the topics of one question, to those used last.
	mostWatched = 100
)

// topicWatch knows the topics in use, and finds those that cannot be written to. All
// methods but judge may be called from several goroutines.
type topicWatch struct {
	cfg     Options
	patient time.Duration // until lasting trouble is reported
	always  []Use
	client  kmsg.Requestor // for requests to the controller

	mu   sync.Mutex
	used map[string]time.Time // of events

	since map[string]time.Time // of trouble, by topic
	sound map[string]bool      // topics once found without trouble
	tried map[string]creation  // of missing topics to be created
}

func newTopicWatch(cfg Options, patient time.Duration, always []Use) *topicWatch {
	return &topicWatch{cfg: cfg, patient: patient, always: always, used: map[string]time.Time{},
		since: map[string]time.Time{}, sound: map[string]bool{}, tried: map[string]creation{}}
}

// note notes that events go to the topic.
func (w *topicWatch) note(topic string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.used[topic] = now
}

// uses are the topics to ask for.
func (w *topicWatch) uses(now time.Time) map[string]Use {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.used, func(_ string, at time.Time) bool { return now.Sub(at) > usedLately })
	last := slices.SortedFunc(maps.Keys(w.used), func(a, b string) int { return w.used[b].Compare(w.used[a]) })
	uses := make(map[string]Use)
	for _, topic := range last[:min(len(last), mostWatched)] {
		uses[topic] = EventUse(w.cfg, topic)
	}
	for _, use := range w.always {
		uses[use.Topic] = use
	}
	return uses
}

// judge returns the lasting troubles of the topics in a broker's answer, in the
// order of their names. A fault of a topic always in use counts at once: an
// instance is not ready until the topic was found sound.
func (w *topicWatch) judge(ctx context.Context, of kmsg.Requestor, uses map[string]Use, topics []kmsg.MetadataResponseTopic, now time.Time) (troubles []error) {
	topics = slices.DeleteFunc(topics, func(t kmsg.MetadataResponseTopic) bool { return t.Topic == nil })
	slices.SortFunc(topics, func(a, b kmsg.MetadataResponseTopic) int { return strings.Compare(*a.Topic, *b.Topic) })
	least := inSyncOf(ctx, of, topics)
	since := make(map[string]time.Time)
	for _, t := range topics {
		err := w.trouble(uses[*t.Topic], &t, least)
		if err == nil {
			err = w.uncreatable(ctx, uses[*t.Topic], &t, now)
		}
		if err == nil {
			w.sound[*t.Topic] = true
			continue
		}
		began, known := w.since[*t.Topic]
		if !known {
			began = now
		}
		since[*t.Topic] = began
		if now.Sub(began) >= w.patient || w.doubtful(*t.Topic, err) {
			troubles = append(troubles, err)
		}
	}
	w.since = since
	return troubles
}

// doubtful reports whether the topic is always in use, and has not been sound
// so far. A topic made by the pipeline at the start may be missing before.
func (w *topicWatch) doubtful(topic string, trouble error) bool {
	return !w.sound[topic] && slices.ContainsFunc(w.always, func(u Use) bool {
		return u.Topic == topic && (!u.Read || failure.ClassOf(trouble) == failure.Config)
	})
}

// refused is the reason against events in an existing topic, or nil.
func (w *topicWatch) refused(t kmsg.MetadataResponseTopic) error {
	if t.Topic == nil {
		return nil
	}
	err := w.trouble(Use{Topic: *t.Topic, Optional: true}, &t, nil)
	if failure.ClassOf(err) != failure.Config {
		return nil
	}
	return mayPass(failure.RemedyOf(err), err.Error())
}

// creation is the brokers' last answer about the creation of a topic.
type creation struct {
	at      time.Time
	refusal error // nil: they would create it
}

// createdAgain is the time between two questions about a topic that brokers would create.
const createdAgain = time.Minute

// uncreatable is the reason against the creation of a missing topic by events or dead
// letters, or nil. Brokers are asked without creating the topic.
func (w *topicWatch) uncreatable(ctx context.Context, use Use, t *kmsg.MetadataResponseTopic, now time.Time) error {
	if !w.cfg.CreateTopics || use.Read || t.ErrorCode != kerr.UnknownTopicOrPartition.Code || w.client == nil {
		delete(w.tried, use.Topic)
		return nil
	}
	last, known := w.tried[use.Topic]
	if known && last.refusal == nil && now.Sub(last.at) < createdAgain {
		return nil
	}
	last = creation{at: now}
	if _, err := createTopic(ctx, w.client, w.cfg, use, true); failure.ClassOf(err) == failure.Config {
		last.refusal = err
	}
	w.tried[use.Topic] = last
	return last.refusal
}

// trouble is the reason against writes to the topic, or nil.
func (w *topicWatch) trouble(use Use, t *kmsg.MetadataResponseTopic, least map[string]int) error {
	operations := []kmsg.ACLOperation{kmsg.ACLOperationWrite}
	allow := "Write --operation Describe"
	if use.Read {
		operations, allow = append(operations, kmsg.ACLOperationRead), "Read --operation "+allow
	}
	switch err := kerr.ErrorForCode(t.ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition) && use.Optional:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return mayPass(CreateCommand(w.cfg, use.Topic)+"; if events no longer go there, restart the connector", MissingTopicText+use.Topic)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return failure.Configf(w.cfg.Tools().Allow(allow, use.Topic), "topic %q: %w", use.Topic, err)
	case errors.Is(err, kerr.InvalidTopicException):
		return nil // a bad event
	case err != nil:
		return mayPass("look at the brokers' logs", fmt.Sprintf("topic %q: %v", use.Topic, err))
	}
	for _, op := range operations {
		if !broker.Permits(t.AuthorizedOperations, op) {
			return failure.Configf(w.cfg.Tools().Allow(allow, use.Topic), "the broker does not allow to %s topic %q", verbs[op], use.Topic)
		}
	}
	return w.partitions(use.Topic, t, least)
}

var verbs = map[kmsg.ACLOperation]string{kmsg.ACLOperationWrite: "write to", kmsg.ACLOperationRead: "read"}

// partitions is the reason against writes to some partitions, or nil.
func (w *topicWatch) partitions(topic string, t *kmsg.MetadataResponseTopic, least map[string]int) error {
	var headless, short []int32
	copies := 0
	for _, p := range t.Partitions {
		switch {
		case p.Leader < 0:
			headless = append(headless, p.Partition)
		case len(p.ISR) < min(least[topic], len(p.Replicas)): // brokers ask for no more than there are
			short, copies = append(short, p.Partition), len(p.ISR)
		}
	}
	switch {
	case len(headless) > 0:
		return mayPass(w.cfg.Tools().StartBrokers(topic),
			fmt.Sprintf("topic %q has no leader for partitions %v", topic, headless))
	case len(short) > 0:
		return mayPass(w.cfg.Tools().StartBrokers(topic),
			fmt.Sprintf("topic %q has %d replicas in sync of partitions %v, but min.insync.replicas is %d", topic, copies, short, least[topic]))
	}
	return nil
}

// MissingTopicText begins the reason of a missing topic.
const MissingTopicText = "topic does not exist: "

func mayPass(remedy, text string) error {
	return &failure.Error{Class: failure.Transient, Remedy: remedy, Err: errors.New(text)}
}

// inSyncOf returns min.insync.replicas of the topics with replicas out of sync, as far as
// the broker tells: the right to DescribeConfigs is required.
func inSyncOf(ctx context.Context, of kmsg.Requestor, topics []kmsg.MetadataResponseTopic) map[string]int {
	const setting = "min.insync.replicas"
	var lacking []string
	for _, t := range topics {
		if slices.ContainsFunc(t.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return len(p.ISR) < len(p.Replicas) }) {
			lacking = append(lacking, *t.Topic)
		}
	}
	least := make(map[string]int)
	if len(lacking) == 0 {
		return least
	}
	all, _ := broker.EachTopic(ctx, of, lacking, setting)
	for topic, settings := range all {
		least[topic], _ = settings.Number(setting)
	}
	return least
}
