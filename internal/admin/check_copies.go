package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// minInSync is Kafka's setting for the number of copies behind an
// acknowledgement.
const minInSync = "min.insync.replicas"

// copies judges the worth of an acknowledgement: with acks=all it stands for the
// copies in sync at the time, at least min.insync.replicas. Topics of the same
// verdict share a line.
func (d *doctor) copies(ctx context.Context, c *cluster) {
	topics := make(map[verdict][]string)
	checkpoints := wiring.CheckpointTopic(d.cfg)
	for _, topic := range d.knownTopics() {
		v := unknown
		replicas, least, err := c.copies(ctx, topic, topic == checkpoints)
		if err != nil {
			v.text = err.Error()
		} else {
			v = judgeCopies(replicas, least)
		}
		topics[v] = append(topics[v], topic)
	}
	for _, v := range slices.SortedFunc(maps.Keys(topics), func(a, b verdict) int { return cmp.Compare(a.text, b.text) }) {
		remedy := ""
		if v == singleCopy || v == maybeSingleCopy {
			remedy = "three replicas and " + minInSync + " 2; replicas: kafka-reassign-partitions.sh, or create the topic with --replication-factor 3; then: " +
				c.cfg.Tools().Set(topics[v][0], minInSync+"=2")
		}
		d.add("kafka.copies", v.outcome, strings.Join(topics[v], ", ")+": "+v.text, remedy)
	}
}

// knownTopics are the topics to be written in any case.
func (d *doctor) knownTopics() []string {
	topics := slices.Clone(d.topics)
	if d.cfg.Errors.OnBadEvent == transform.BadEventDeadLetter {
		topics = append(topics, d.cfg.Errors.DeadLetterTopic)
	}
	if d.cfg.Errors.OnBadEvent == transform.BadEventQuarantine {
		topics = append(topics, wiring.QuarantineTopic(d.cfg))
	}
	if d.cfg.Checkpoint.Store == store.StoreKafka && d.cfg.Source.Mode != config.ModePoll {
		topics = append(topics, wiring.CheckpointTopic(d.cfg))
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// verdict is the worth of a topic's copies.
type verdict struct {
	outcome Outcome
	text    string
}

var (
	enoughCopies    = verdict{OK, "an acknowledged event has at least two copies"}
	singleCopy      = verdict{Warn, "one replica: acks=all means one copy, and what was acknowledged and confirmed to PostgreSQL is lost with one broker's disk"}
	maybeSingleCopy = verdict{Warn, minInSync + " is 1: while the other replicas are out of sync acks=all means one copy, and what was acknowledged and confirmed to PostgreSQL is lost with one broker's disk"}

	unknown = verdict{Skipped, ""}
)

// judgeCopies: where a topic has fewer replicas than must be in sync, brokers ask for
// no more than there are.
func judgeCopies(replicas, least int) verdict {
	switch {
	case replicas == 1:
		return singleCopy
	case least < 2:
		return maybeSingleCopy
	}
	return enoughCopies
}

// copies returns the number of the topic's replicas, present or after its creation, and
// the number to be in sync. For event topics to create, the connector asks for the
// configured numbers; for our own topics, and those of another creator, the cluster
// decides.
func (c *cluster) copies(ctx context.Context, topic string, ours bool) (replicas, least int, err error) {
	state, err := c.lookup(ctx, topic)
	if err == nil {
		least, err = c.leastInSync(ctx, topic)
		return state.replicas, least, err
	}
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return 0, 0, err
	}
	cfg := c.cfg
	if ours || !cfg.CreateTopics {
		cfg.ReplicationFactor, cfg.TopicPartitions, cfg.TopicConfig = -1, -1, nil
	}
	return c.asCreated(ctx, cfg, topic)
}

// asCreated asks for the copies of a topic created so. Only the controller
// knows: its defaults count, and a broker's may differ.
func (c *cluster) asCreated(ctx context.Context, cfg sink.Options, topic string) (replicas, least int, err error) {
	answer, err := c.validate(ctx, cfg, topic)
	if err == nil {
		err = kerr.ErrorForCode(answer.ConfigErrorCode)
	}
	if err == nil && answer.ReplicationFactor < 1 {
		err = errors.New("brokers before 2.4 do not tell")
	}
	if err != nil {
		return 0, 0, fmt.Errorf("ask how topic %q would be created: %w", topic, err)
	}
	for _, s := range answer.Configs {
		if s.Name == minInSync && s.Value != nil {
			least, err = strconv.Atoi(*s.Value)
			return int(answer.ReplicationFactor), least, err
		}
	}
	return 0, 0, fmt.Errorf("the controller does not tell %s of topic %q", minInSync, topic)
}

// leastInSync is min.insync.replicas of an existing topic.
func (c *cluster) leastInSync(ctx context.Context, topic string) (int, error) {
	settings, err := broker.TopicSettings(ctx, c.client, topic, minInSync)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", minInSync, err)
	}
	return settings.Number(minInSync)
}

// topicSettings are those of an existing topic.
func (c *cluster) topicSettings(ctx context.Context, topic string) (broker.Settings, error) {
	settings, err := broker.TopicSettings(ctx, c.client, topic)
	if err != nil {
		return nil, fmt.Errorf("read the settings of topic %q: %w", topic, err)
	}
	return settings, nil
}
