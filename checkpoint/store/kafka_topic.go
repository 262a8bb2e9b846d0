package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
)

const cleanupPolicy = "cleanup.policy"

// topicConfig has the settings of the store's topic. It is only compacted,
// because a checkpoint may be older than any retention, and compacted often: the
// cleaner leaves the active segment alone, so segments are as small as brokers
// allow (1 MiB since Kafka 4.0, a few thousand checkpoints).
var topicConfig = map[string]string{
	cleanupPolicy:               "compact",
	"segment.bytes":             "1048576",
	"min.cleanable.dirty.ratio": "0.1",
}

// createTimeout is the brokers' time for the creation.
const createTimeout = 15 * time.Second

// topicPatience is how long a topic just created may stay unknown to the brokers,
// and topicPoll the time between two questions.
const (
	topicPatience = 15 * time.Second
	topicPoll     = 50 * time.Millisecond
)

// leastAsked is the least number of questions, even if the time is over. For a
// process that was suspended the time may be over after the first question.
const leastAsked = 10

// EnsureTopic checks a topic that is kept as the checkpoint's is, or creates it: with a single
// partition, compacted, with the settings. option names the topic in remedies.
func EnsureTopic(ctx context.Context, client *kgo.Client, topic, option string, settings map[string]string, tools broker.Tools) error {
	settings = maps.Clone(settings)
	maps.Copy(settings, topicConfig)
	k := &kafka{client: client, topic: topic, option: option, settings: settings, tools: tools}
	_, err := await.Answer(ctx, func() (none struct{}, err error) { return none, k.ensureTopic(ctx) })
	return err
}

// ensureTopic checks the topic or creates it.
func (k *kafka) ensureTopic(ctx context.Context) error {
	topic, err := k.describe(ctx)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return k.createTopic(ctx)
	}
	if err != nil {
		return k.classify(err, "Describe")
	}
	return k.checkTopic(ctx, topic)
}

// describe returns the topic's metadata; an unusable topic is an error.
func (k *kafka) describe(ctx context.Context) (kafkalog.Topic, error) {
	topic, err := kafkalog.Describe(ctx, k.client, k.topic)
	if err != nil {
		return kafkalog.Topic{}, err
	}
	return topic, topic.Usable(0)
}

func (k *kafka) createTopic(ctx context.Context) error {
	err := broker.CreateTopic(ctx, k.client, broker.NewTopic{Name: k.topic, Partitions: 1, Replicas: -1, Settings: k.settings}, createTimeout)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create it: %w", k.classifyCreate(err))
	}
	var topic kafkalog.Topic
	err = untilKnown(ctx, topicPatience, func(ctx context.Context) (err error) {
		topic, err = k.describe(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for it after creation: %w", err)
	}
	return k.checkTopic(ctx, topic)
}

func (k *kafka) classifyCreate(err error) error {
	for _, refused := range []error{kerr.InvalidReplicationFactor, kerr.InvalidConfig, kerr.PolicyViolation} {
		if errors.Is(err, refused) {
			return failure.Configf("create it as the cluster's rules want it: "+
				k.tools.Create(broker.NewTopic{Name: k.topic, Partitions: 1, Settings: map[string]string{cleanupPolicy: "compact"}}), "%w", err)
		}
	}
	return k.classify(err, "Create")
}

// untilKnown repeats f, for patience, while brokers do not know the topic or its
// leader. Some may not have heard of a new topic yet, and a broker just started
// of no topic at all.
func untilKnown(ctx context.Context, patience time.Duration, f func(context.Context) error) error {
	ends := time.Now().Add(patience)
	for asked := 1; ; asked++ {
		err := f(ctx)
		if !kerr.IsRetriable(err) || asked >= leastAsked && time.Now().After(ends) {
			return err
		}
		if backoff.Sleep(ctx, topicPoll) != nil {
			return err
		}
	}
}

// checkTopic refuses a topic without safety for the checkpoint, or for the order
// of two checkpoints (failure mode 36).
func (k *kafka) checkTopic(ctx context.Context, topic kafkalog.Topic) error {
	if n := len(topic.Leaders); n != 1 {
		return failure.Configf("set "+k.option+" to a name that is free (cdc-outbox creates it), or to a topic of one partition",
			"it has %d partitions, not 1", n)
	}
	var policy string
	err := untilKnown(ctx, topicPatience, func(ctx context.Context) (err error) {
		policy, err = k.cleanupPolicy(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("read its configuration: %w", k.classify(err, "DescribeConfigs"))
	}
	if policy != "compact" {
		return failure.Lossf(k.tools.Set(k.topic, cleanupPolicy+"=compact"),
			"its cleanup.policy is %q, not compact: the broker deletes records when they are old", policy)
	}
	return nil
}

func (k *kafka) cleanupPolicy(ctx context.Context) (string, error) {
	settings, err := broker.TopicSettings(ctx, k.client, k.topic, cleanupPolicy)
	if err != nil {
		return "", err
	}
	policy, ok := settings[cleanupPolicy]
	if !ok {
		return "", errors.New("the broker does not tell its cleanup.policy")
	}
	return policy, nil
}
