package sink

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
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// topic is a topic that is known to exist.
type topic struct {
	name string
	// partitions is the number keys are hashed over. It changes between rounds only.
	partitions int32
	// known is the client's number of partitions.
	known *partitionCount
	// acked outlives forget.
	acked *acked
	// times are the brokers' last answer about the topic's times, at timesAsked; timed:
	// they were asked.
	times      times
	timesAsked time.Time
	timed      bool

	// loads is the round with the event for which the client loads the topic.
	loads uint64

	// told is the time of the last call of the observer's TopicUsed.
	told time.Time

	// round is the round of the fields below.
	round  uint64
	shares []share // by partition
}

// share is a partition's share of a round: one batch.
type share struct {
	topic   *topic
	first   int // index in the round
	records int
	bytes   int
}

// begin empties the shares for a round.
func (t *topic) begin(round uint64) {
	t.round = round
	t.shares = slices.Grow(t.shares[:0], int(t.partitions))[:t.partitions]
	clear(t.shares)
}

// fresh reports whether the client has not loaded the topic yet.
func (t *topic) fresh() bool { return t.known.n.Load() == 0 }

// choose returns the record's partition: the partition asked for, or the key's.
// Records without a key take the partitions in turn, another each round.
func (t *topic) choose(rec *kgo.Record) int32 {
	switch {
	case rec.Partition != transform.PartitionByKey:
		return rec.Partition
	case rec.Key != nil:
		return int32(byKey.Partition(rec, int(t.partitions)))
	}
	return int32(t.round % uint64(t.partitions))
}

// reserve makes room for size bytes in the partition's share, of limit bytes at
// most or a single record.
func (t *topic) reserve(partition int32, size, limit int) bool {
	share := &t.shares[partition]
	if share.bytes > 0 && share.bytes+size > limit {
		return false
	}
	share.bytes += size
	return true
}

// located is the cluster's answer about a topic.
type located struct {
	partitions int32
	id         topicID
}

// lookup asks the cluster for the topic's number of partitions and id, and never creates
// the topic.
func (k *Kafka) lookup(ctx context.Context, name string) (located, error) {
	t, err := broker.Topic(ctx, broker.Impatient{Client: k.client}, name)
	if err != nil {
		return located{}, err
	}
	return located{int32(len(t.Partitions)), t.TopicID}, nil
}

// mostAhead bounds the topics of one question.
const mostAhead = 1000

// lookAhead looks unknown topics of n events up in one question: to ask for each would take
// a round trip, and as many rounds. topic is that of the i-th event; "": of no interest. Of
// a topic without an answer, the first event asks again.
func (k *Kafka) lookAhead(ctx context.Context, n int, topic func(i int) string) {
	asked := make(map[string]bool)
	for i := 0; i < n && len(asked) < mostAhead; i++ {
		if name := topic(i); name != "" && k.topics[name] == nil && !k.absents.has(name) {
			asked[name] = true
		}
	}
	if len(asked) < 2 {
		return
	}
	resp, err := broker.Topics(ctx, broker.Impatient{Client: k.client}, slices.Collect(maps.Keys(asked))...)
	if err != nil {
		return
	}
	for _, t := range resp.Topics {
		if t.Topic != nil && asked[*t.Topic] && t.ErrorCode == 0 && len(t.Partitions) > 0 {
			k.found(*t.Topic, located{int32(len(t.Partitions)), t.TopicID})
		}
	}
}

// missing is a policy for topics that do not exist.
type missing uint8

const (
	missingWait missing = iota
	missingCreate
	missingBadEvent
	missingFail
)

// missingPolicy is the policy for the topics of events.
func missingPolicy(cfg Options) missing {
	switch {
	case cfg.CreateTopics:
		return missingCreate
	case cfg.MissingTopic == MissingTopicBadEvent:
		return missingBadEvent
	}
	return missingWait
}

// final reports whether the policy decides at once, without looking for the
// missing topic again.
func (m missing) final() bool { return m == missingBadEvent || m == missingFail }

// search is the search for a topic.
type search struct {
	name    string
	policy  missing
	retry   backoff.Series
	warned  bool
	unknown broker.Unknown
}

func newSearch(name string, policy missing) *search {
	return &search{name: name, policy: policy, retry: backoff.Series{Range: waits}}
}

// resolve returns once the topic exists. The error is a *transform.BadEvent
// where the topic is the event's fault.
func (k *Kafka) resolve(ctx context.Context, name string, policy missing) (*topic, error) {
	s := newSearch(name, policy)
	for {
		if t, err := k.look(ctx, s); t != nil || err != nil {
			return t, err
		}
		if err := s.retry.Pause(ctx); err != nil {
			return nil, err
		}
	}
}

// look looks for the topic once. Nil without an error: look again.
func (k *Kafka) look(ctx context.Context, s *search) (*topic, error) {
	found, err := k.lookup(ctx, s.name)
	if err == nil && found.partitions > 0 {
		k.found(s.name, found)
		return k.topics[s.name], nil
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		if missing := s.unknown.Missing(); !missing && !k.absents.has(s.name) && s.policy.final() {
			err = passingError{fmt.Errorf("look up topic %q: %w", s.name, err)}
		} else {
			err = k.absent(ctx, s.name, s.policy)
		}
	} else if err != nil {
		err = k.lookupFailed(err, s.name)
	}
	if _, ok := errors.AsType[passingError](err); err != nil && !ok {
		return nil, err
	}
	if err != nil && !s.warned {
		s.warned = true
		k.log.Warn("cannot resolve topic, retrying", zap.String("topic", s.name), zap.Error(err))
	}
	return nil, nil
}

// passingError marks a transient error of a topic's resolution.
type passingError struct{ error }

// Unwrap returns the marked error.
func (e passingError) Unwrap() error { return e.error }

// found records the topic, and tells the observer that no delivery waits for it.
func (k *Kafka) found(name string, as located) {
	k.absents.remove(name)
	known := k.known(name, as.id)
	if as.id.other(known.id) {
		k.remade(name, known, as.id)
	}
	k.topics[name] = &topic{name: name, partitions: as.partitions, known: k.partitions.count(name), acked: known}
	if k.waiting[name] {
		delete(k.waiting, name)
		k.observer.TopicWaiting(name, false)
		k.log.Info("topic exists now", zap.String("topic", name), zap.Int32("partitions", as.partitions))
	}
}

// known returns the topic's acknowledged ends, with the id, unless the topic was made anew.
func (k *Kafka) known(name string, id topicID) *acked {
	k.ledger.Lock()
	defer k.ledger.Unlock()
	a := k.acked[name]
	if a == nil {
		a = new(acked)
		k.acked[name] = a
	}
	if !id.other(a.id) {
		a.id = id
	}
	return a
}

// absent applies the policy for a missing topic. Nil: look the topic up again.
func (k *Kafka) absent(ctx context.Context, name string, policy missing) error {
	err := fmt.Errorf("topic %q does not exist", name)
	k.absents.add(name)
	switch policy {
	case missingCreate:
		return k.create(ctx, name)
	case missingBadEvent:
		return &transform.BadEvent{Reason: transform.ReasonMissingTopic, Err: err}
	case missingFail:
		return failure.Configf(CreateCommand(createdWith(k.cfg, name == k.deadLetter), name), "%w", err)
	}
	if !k.waiting[name] {
		k.waiting[name] = true
		k.observer.TopicWaiting(name, true)
		k.log.Warn("waiting for a missing topic",
			zap.String("topic", name), zap.String("remedy", CreateCommand(k.cfg, name)))
	}
	return nil
}

// lookupFailed judges a lookup without an answer about the topic.
func (k *Kafka) lookupFailed(err error, name string) error {
	wrapped := fmt.Errorf("look up topic %q: %w", name, err)
	switch {
	case errors.Is(err, kerr.InvalidTopicException):
		return &transform.BadEvent{Reason: transform.ReasonIllegalTopic, Err: wrapped}
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return failure.Configf(k.cfg.Tools().Allow("Write --operation Describe", name), "%w", wrapped)
	case errors.Is(err, kgo.ErrClientClosed):
		return wrapped
	}
	return passingError{wrapped}
}

// createdWith are the options for the creation of a topic, of events or of dead letters.
func createdWith(cfg Options, letters bool) Options {
	if letters {
		return ForDeadLetters(cfg)
	}
	return cfg
}

// create creates the topic. A topic that exists by now is no error.
func (k *Kafka) create(ctx context.Context, name string) error {
	created, err := createTopic(ctx, broker.Impatient{Client: k.client}, k.cfg, Use{Topic: name, Letters: name == k.deadLetter}, false)
	if created {
		k.log.Info("created topic", zap.String("topic", name))
	}
	return err
}

// createTopic asks brokers to create the topic, or, with try, whether they would, and judges
// a refusal. A topic that exists by now is no error.
func createTopic(ctx context.Context, client kmsg.Requestor, cfg Options, use Use, try bool) (created bool, err error) {
	created, err = requestTopic(ctx, client, createdWith(cfg, use.Letters), use.Topic, try)
	if use.Letters && (errors.Is(err, kerr.InvalidConfig) || errors.Is(err, kerr.PolicyViolation)) {
		created, err = requestTopic(ctx, client, cfg, use.Topic, try) // clusters may bound the size; large dead letters are cut then
	}
	if err != nil {
		return false, notCreated(cfg, err, use.Topic)
	}
	return created, nil
}

func requestTopic(ctx context.Context, client kmsg.Requestor, cfg Options, name string, try bool) (created bool, err error) {
	if topic := NewTopic(cfg, name); try {
		_, err = broker.TryTopic(ctx, client, topic, createTimeout)
	} else {
		err = broker.CreateTopic(ctx, client, topic, createTimeout)
	}
	switch {
	case err == nil:
		return !try, nil
	case errors.Is(err, kerr.TopicAlreadyExists):
		return false, nil
	}
	return false, fmt.Errorf("create topic %q: %w", name, err)
}

const createTimeout = 15 * time.Second

// notCreated judges the error of a creation.
func notCreated(cfg Options, err error, name string) error {
	kafka, _ := errors.AsType[*kerr.Error](err)
	switch {
	case broker.MayPass(err), kafka == kerr.UnknownServerError:
		return passingError{err}
	case kafka == kerr.InvalidTopicException:
		return &transform.BadEvent{Reason: transform.ReasonIllegalTopic, Err: err}
	case kafka == kerr.TopicAuthorizationFailed, kafka == kerr.ClusterAuthorizationFailed:
		return failure.Configf(cfg.Tools().Allow("Create", name), "%w", err)
	}
	return failure.Configf("correct sink.kafka.topic_partitions, replication_factor or topic_config, or create it: "+
		CreateCommand(cfg, name), "%w", err)
}

// forget makes the next event of the topic resolve it again. If the topic came
// back under another id, the client must forget the topic too, or it refuses to
// write there. In every other case the client must remember the topic: it would
// number the partition's batches from 0 again, and the broker might take the
// next batch for a repeat.
func (k *Kafka) forget(name string, err error) {
	delete(k.topics, name)
	k.partitions.count(name).n.Store(0)
	if errors.Is(err, kerr.UnknownTopicID) {
		k.client.PurgeTopicsFromProducing(name)
	}
}

// changed notes that the topic's number of partitions has changed.
func (k *Kafka) changed(t *topic, partitions int32) {
	k.log.Warn("topic has another number of partitions, keys move", zap.String("topic", t.name),
		zap.Int32("from", t.partitions), zap.Int32("to", partitions))
	k.observer.PartitionsChanged(t.name, t.partitions, partitions)
	t.partitions = partitions
}

// learn waits until the client has loaded all partitions of a topic, if it has
// written there.
func (k *Kafka) learn(ctx context.Context, t *topic) error {
	retry := backoff.Series{Range: waits}
	for {
		leader, _, err := k.client.PartitionLeader(t.name, t.partitions-1)
		if t.fresh() || leader >= 0 || err != nil {
			return nil
		}
		k.client.ForceMetadataRefresh()
		if err := retry.Pause(ctx); err != nil {
			return err
		}
	}
}

// absent remembers missing topics, so that their next events need not wait for
// several questions again. The names come from the events' data and may be
// anything, so the memory is bounded: the last absentTopics to 2·absentTopics
// different names. A forgotten topic is asked for as patiently as at first.
type absent struct {
	young, old map[string]bool
}

const absentTopics = 512

// has reports whether the topic was found missing.
func (a *absent) has(name string) bool {
	if !a.young[name] && a.old[name] {
		a.add(name)
	}
	return a.young[name]
}

func (a *absent) add(name string) {
	if !a.young[name] && len(a.young) == absentTopics {
		a.old, a.young = a.young, nil
	}
	if a.young == nil {
		a.young = make(map[string]bool)
	}
	a.young[name] = true
}

// remove forgets a topic that exists.
func (a *absent) remove(name string) {
	delete(a.young, name)
	delete(a.old, name)
}
