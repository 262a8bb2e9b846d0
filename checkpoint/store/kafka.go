package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
)

// kafka keeps checkpoints as Kafka Connect keeps its offsets: the last record
// of each key in a compacted topic, here of one partition. A record without a
// value forgets the checkpoint. While a Kafka transaction is open in a topic, the
// last checkpoint behind the transaction is unknown; so each key has a topic of
// its own.
type kafka struct {
	client *kgo.Client // asks
	writer *kgo.Client // writes; the same as client until brokers refuse it; used by Save
	opts   []kgo.Opt
	base   string // the common beginning of all keys' topics
	topic  string // the key's
	key    string
	option string // of the configuration, for topic
	// settings are those of a topic to create.
	settings map[string]string
	tools    broker.Tools
	link     *link
	height   height
}

// metadataAge is the greatest age of the client's knowledge of the topic. Then the
// client asks again, and learns of a new topic or a new leader.
const metadataAge = 100 * time.Millisecond

// unknownRetries is the number of answers in a row without knowledge of the topic
// after which a save takes the topic for deleted. A broker just started may answer
// so, too. With kgo's backoff the retries take a few seconds.
const (
	unknownRetries  = 12
	unknownPatience = 5 * time.Second
)

// saveRetries is the number of repetitions of a refused save, before the client
// returns the brokers' answer. With the pauses they take about two seconds:
// enough for a partition to get another leader. A save that may have been
// written is repeated until the context ends.
const saveRetries = 20

// NewKafka returns the store that keeps the checkpoint as the last record under
// key in Topic(base, key). NewKafka creates a missing topic, and refuses a topic
// without compaction or with several partitions. opts are for a client of the
// store's own; the store overrides the options for producing. tools are for
// remedies. NewKafka blocks until a broker answers, the client gives up or ctx
// ends.
func NewKafka(ctx context.Context, opts []kgo.Opt, base, key string, tools broker.Tools) (checkpoint.Store, error) {
	k, err := connectKafka(opts, base, key, tools)
	if err != nil {
		return nil, err
	}
	_, err = await.Answer(ctx, func() (none struct{}, err error) { return none, k.ensureTopic(ctx) })
	if err != nil {
		k.client.Close()
		return nil, fmt.Errorf("checkpoint topic %s: %w", k.topic, err)
	}
	return k, nil
}

// LookKafka is NewKafka for a look at the checkpoints of other keys: the key's own topic
// may be missing, and stays so.
func LookKafka(opts []kgo.Opt, base, key string, tools broker.Tools) (checkpoint.Store, error) {
	return connectKafka(opts, base, key, tools)
}

func connectKafka(opts []kgo.Opt, base, key string, tools broker.Tools) (*kafka, error) {
	link := new(link)
	opts = append(append([]kgo.Opt(nil), opts...),
		kgo.WithHooks(link),
		kgo.RequiredAcks(kgo.AllISRAcks()), // idempotence is kgo's default
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordRetries(saveRetries),
		kgo.RecordDeliveryTimeout(0),
		// Otherwise a save without an answer would outlive its context. A
		// checkpoint may be written twice.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.UnknownTopicRetries(unknownRetries),
		kgo.MetadataMinAge(metadataAge),
	)
	client, err := broker.Connect(opts...)
	if err != nil {
		return nil, fmt.Errorf("checkpoint store: %w", err)
	}
	return &kafka{client: client, writer: client, opts: opts, base: base, topic: Topic(base, key), key: key,
		option: "checkpoint.topic", settings: topicConfig, tools: tools, link: link}, nil
}

func (k *kafka) Load(ctx context.Context) (checkpoint.Checkpoint, bool, error) {
	return k.load(ctx, openPatience)
}

func (k *kafka) load(ctx context.Context, patience time.Duration) (checkpoint.Checkpoint, bool, error) {
	f, err := await.Answer(ctx, func() (f found, err error) {
		err = untilKnown(ctx, unknownPatience, func(ctx context.Context) error {
			logs, err := kafkalog.Open(ctx, k.client, k.topic, 0)
			if err == nil {
				err = settled(ctx, patience, func() error { f, err = k.look(ctx, logs[0]); return err })
			}
			return err
		})
		return f, err
	})
	if err != nil {
		return checkpoint.Checkpoint{}, false, fmt.Errorf("checkpoint topic %s: %w", k.topic, k.classify(err, "Read"))
	}
	return f.Checkpoint, f.ok, nil
}

// deepPatience bounds a look at the whole topic. Afterwards the end of the topic counts, and
// the next read looks at the whole again.
const deepPatience = 4 * time.Second

// look finds the last checkpoint that counts. It is near the end of the topic, unless a
// paused former holder of the slot later wrote another, with a lower epoch: then any number
// of records of aborted transactions may be in between. So the first look is at the whole
// topic, and so is a look after a lower epoch than before.
func (k *kafka) look(ctx context.Context, log *kafkalog.Partition) (found, error) {
	l, err := lookAt(ctx, k.key, kafkalog.Newest, log, log.Raw())
	if err != nil {
		return found{}, err
	}
	f, err := l.found()
	if f.nothing { // known after a look at the whole
		k.height.note(&f)
	}
	if err != nil || l.fenced() || !k.height.below(&f) {
		return f, err
	}
	deep, cancel := context.WithTimeout(ctx, deepPatience)
	defer cancel()
	if l, err = lookAt(deep, k.key, kafkalog.All, log, log.Raw()); err != nil {
		if deep.Err() != nil && ctx.Err() == nil {
			err = nil
		}
		return f, err
	}
	if f, err = l.found(); err == nil {
		k.height.note(&f)
	}
	return f, err
}

// height is the highest epoch found. Several goroutines may call the methods.
type height struct {
	mu     sync.Mutex
	looked bool // at the whole topic
	epoch  int64
}

// below reports whether the topic may have a checkpoint of a higher epoch than the checkpoint
// found, and otherwise notes the epoch found.
func (h *height) below(f *found) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.looked || f.ok && f.Epoch < h.epoch {
		return true
	}
	h.epoch = f.Epoch
	return false
}

// note notes the result of a look at the whole topic.
func (h *height) note(f *found) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looked, h.epoch = true, f.Epoch
}

// found is the checkpoint under a key, if ok.
type found struct {
	checkpoint.Checkpoint
	ok      bool
	offset  int64 // of the deciding record
	nothing bool  // there is no record, not even one without a value
}

// pick returns the counting checkpoint among the newest records of a key, given in
// the order of the log: the furthest checkpoint of the highest epoch. Records
// before a record without a value do not count, nor do overwritten unreadable
// records.
func pick(records []*kgo.Record) (f found, err error) {
	f.nothing = len(records) == 0
	for _, r := range records {
		if r.Value == nil {
			f, err = found{offset: r.Offset}, nil
			continue
		}
		next, bad := decode(r.Value, fmt.Sprintf("the record at offset %d of topic %s under key %q", r.Offset, r.Topic, r.Key))
		if ends := endsOf(r); ends != nil {
			next.Ends = ends
		}
		switch {
		case bad != nil:
			f, err = found{}, bad
		case !f.ok || next.Replaces(&f.Checkpoint):
			f, err = found{Checkpoint: next, ok: true, offset: r.Offset}, nil
		}
	}
	return f, err
}

// classify adds class and remedy to broker errors for an operator.
func (k *kafka) classify(err error, operation string) error {
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return failure.Lossf(
			"find out who deleted it; a restart creates it anew and reads the slot on from its own confirmed position, without the check that nobody else moved it (with source.snapshot: initial, once it is decided whether the table is published again)",
			"the topic was deleted: %w", err)
	case errors.Is(err, kerr.InvalidTopicException):
		return failure.Configf("set "+k.option+" to a legal topic name: letters, digits, '.', '_' and '-'", "%w", err)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return failure.Configf(k.tools.Allow(TopicOperations, k.topic),
			"not allowed to %s it: %w", operation, err)
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return failure.Configf(k.tools.Allow(operation, ""),
			"not allowed to %s: %w", operation, err)
	}
	return err
}

// TopicOperations are all operations on the topic. A remedy names all of them:
// with only the refused operation allowed, the next would be refused.
const TopicOperations = "Read --operation Write --operation Describe --operation DescribeConfigs --operation Create"
