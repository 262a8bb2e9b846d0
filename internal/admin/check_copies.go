package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Kafka's names of the settings that say how many copies there are, and how many
// of them an acknowledgement stands for.
const (
	minInSync          = "min.insync.replicas"
	defaultReplication = "default.replication.factor"
)

// copies looks at what an acknowledgement is worth: with acks=all it stands for
// the copies in sync at that time, of which min.insync.replicas must be there.
// Topics of one verdict share a line.
func (d *doctor) copies(ctx context.Context, c *cluster) {
	const name = "kafka.copies"
	lines := make(map[string][]string) // topics by verdict
	for _, topic := range d.knownTopics() {
		replicas, least, err := c.copies(ctx, topic, topic == d.cfg.Checkpoint.Topic)
		verdict := judgeCopies(replicas, least)
		if err != nil {
			verdict = unknownCopies + err.Error()
		}
		lines[verdict] = append(lines[verdict], topic)
	}
	verdicts := make([]string, 0, len(lines))
	for verdict := range lines {
		verdicts = append(verdicts, verdict)
	}
	slices.Sort(verdicts)
	for _, verdict := range verdicts {
		topics := strings.Join(lines[verdict], ", ")
		switch {
		case strings.HasPrefix(verdict, unknownCopies):
			d.skip(name, topics+": "+strings.TrimPrefix(verdict, unknownCopies))
		case verdict == enoughCopies:
			d.ok(name, "%s: %s", topics, verdict)
		case verdict == neverEnoughCopies:
			d.fail(name, failure.Configf(sink.ConfigCommand(c.cfg, lines[verdict][0], minInSync+"=…"), "%s: %s", topics, verdict))
		default:
			d.warn(name, "three replicas and "+minInSync+" 2; replicas: kafka-reassign-partitions.sh, or create the topic with --replication-factor 3; then: "+
				sink.ConfigCommand(c.cfg, lines[verdict][0], minInSync+"=2"), "%s: %s", topics, verdict)
		}
	}
}

// knownTopics are the topics that will be written to in any case.
func (d *doctor) knownTopics() []string {
	topics := slices.Clone(d.topics)
	if d.cfg.Errors.OnBadEvent == transform.BadEventDeadLetter {
		topics = append(topics, d.cfg.Errors.DeadLetterTopic)
	}
	if d.cfg.Checkpoint.Store == store.StoreKafka && d.cfg.Source.Mode != config.ModePoll {
		topics = append(topics, d.cfg.Checkpoint.Topic)
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// The verdicts.
const (
	enoughCopies      = "an acknowledged event has at least two copies"
	singleCopy        = "one replica: acks=all means one copy, and what was acknowledged and confirmed to PostgreSQL is lost with one broker's disk"
	maybeSingleCopy   = minInSync + " is 1: while the other replicas are out of sync acks=all means one copy, and what was acknowledged and confirmed to PostgreSQL is lost with one broker's disk"
	neverEnoughCopies = minInSync + " is more than the topic has replicas: nothing can ever be written"
	unknownCopies     = "unknown: "
)

func judgeCopies(replicas, least int) string {
	switch {
	case replicas < least:
		return neverEnoughCopies
	case replicas == 1:
		return singleCopy
	case least < 2:
		return maybeSingleCopy
	}
	return enoughCopies
}

// copies returns how many replicas the topic has, or will have once it is created,
// and how many of them must be in sync. The connector asks for what the
// configuration says of event topics it creates; ours is created as the broker
// likes.
func (c *cluster) copies(ctx context.Context, topic string, ours bool) (replicas, least int, err error) {
	admin := kadm.NewClient(c.client)
	state, err := c.lookup(ctx, topic)
	if err == nil {
		least, err = c.setting(ctx, minInSync, func(ctx context.Context) (kadm.ResourceConfigs, error) {
			return admin.DescribeTopicConfigs(ctx, topic)
		})
		return state.replicas, least, err
	}
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return 0, 0, err
	}
	broker := func(ctx context.Context) (kadm.ResourceConfigs, error) {
		meta, err := admin.BrokerMetadata(ctx)
		if err != nil {
			return nil, err
		}
		if len(meta.Brokers) == 0 {
			return nil, errors.New("no broker is known")
		}
		return admin.DescribeBrokerConfigs(ctx, meta.Brokers[0].NodeID)
	}
	if replicas = int(c.cfg.ReplicationFactor); ours || !c.cfg.CreateTopics || replicas < 1 {
		if replicas, err = c.setting(ctx, defaultReplication, broker); err != nil {
			return 0, 0, err
		}
	}
	if text, ok := c.cfg.TopicConfig[minInSync]; ok && !ours && c.cfg.CreateTopics {
		least, err = strconv.Atoi(text)
		return replicas, least, err
	}
	least, err = c.setting(ctx, minInSync, broker)
	return replicas, least, err
}

// setting returns a number from the settings of one topic or broker.
func (c *cluster) setting(ctx context.Context, key string, ask func(context.Context) (kadm.ResourceConfigs, error)) (int, error) {
	resources, err := ask(ctx)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", key, err)
	}
	for _, r := range resources {
		if r.Err != nil {
			return 0, fmt.Errorf("read %s: %w", key, r.Err)
		}
		for _, s := range r.Configs {
			if s.Key == key {
				return strconv.Atoi(s.MaybeValue())
			}
		}
	}
	return 0, fmt.Errorf("the broker does not tell %s", key)
}
