package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// kafka runs the checks of the broker side.
func (d *doctor) kafka(ctx context.Context) {
	if d.cfg.Sink.Kafka == nil {
		d.skip("kafka", "the sink is stdout")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()

	c := newCluster(d.cfg)
	who, ends, err := c.cfg.WhoLogsIn(ctx)
	if d.identity("kafka.identity", who, ends, err) {
		if err = c.connect(ctx); err != nil {
			d.fail("kafka.connection", err)
		}
	}
	if err != nil {
		d.kafkaDown = true
		d.skip("kafka", "no connection: topics and privileges")
		return
	}
	defer c.client.Close()
	d.ok("kafka.connection", "%s", strings.Join(c.cfg.Brokers, ", "))

	d.controllerClock(ctx, c)
	d.eventTopics(ctx, c)
	d.timesOf(ctx, c)
	d.deadLetterTopic(ctx, c)
	d.quarantineTopic(ctx, c)
	if d.cfg.Checkpoint.Store == store.StoreKafka {
		d.checkpointTopic(ctx, c)
	}
	d.copies(ctx, c)
	d.transactions(ctx, c)
	d.repairInto(ctx, c)
}

// eventTopics checks the topics of the rows in the outbox now; routes may lead
// to others later.
func (d *doctor) eventTopics(ctx context.Context, c *cluster) {
	if _, topic, err := d.cfg.Route.Topics(); err == nil && topic != "" && !slices.Contains(d.topics, topic) {
		d.topics = append(d.topics, topic) // whatever the row
	}
	switch {
	case len(d.topics) > 0:
	case len(d.cfg.Source.Tables) == 0:
		d.skip("kafka.topics", "a message tells its topic only once it is written")
	default:
		d.skip("kafka.topics", "no rows in the outbox that this role may read, so the topics are not known")
	}
	for _, topic := range d.topics {
		d.topic(ctx, c, "kafka.topic "+topic, topic)
	}
}

func (d *doctor) deadLetterTopic(ctx context.Context, c *cluster) {
	const name = "kafka.dead_letter_topic"
	if d.cfg.Errors.OnBadEvent != transform.BadEventDeadLetter {
		d.skip(name, "errors.on_bad_event is "+d.cfg.Errors.OnBadEvent)
		return
	}
	topic, letters := d.cfg.Errors.DeadLetterTopic, *c
	letters.cfg = sink.ForDeadLetters(c.cfg)
	d.topic(ctx, &letters, name, topic)
	if _, err := c.lookup(ctx, topic); err == nil {
		d.letters(ctx, c, topic)
	}
}

// letters checks the size of dead letters the topic takes.
func (d *doctor) letters(ctx context.Context, c *cluster, topic string) {
	const name, policy = "kafka.dead_letters", "cleanup.policy"
	settings, err := c.topicSettings(ctx, topic)
	if err != nil {
		d.skip(name, err.Error())
		return
	}
	if strings.Contains(settings[policy], "compact") {
		d.warn("kafka.dead_letter_cleanup", c.cfg.Tools().Set(topic, policy+"=delete"),
			"topic %q is compacted: a dead letter without a key is refused, which stops the pipeline, and of those with one key the last is kept", topic)
	}
	largest, err := strconv.Atoi(settings[sink.MaxMessageBytes])
	switch {
	case err != nil:
		d.skip(name, fmt.Sprintf("the broker does not tell %s of topic %q", sink.MaxMessageBytes, topic))
	case largest < sink.LargestLetter(c.cfg):
		d.warn(name, sink.LargerLettersCommand(c.cfg, topic),
			"%s of topic %q is %d: a dead letter larger than that is cut, and an event of sink.kafka.max_record_bytes, %d, has one",
			sink.MaxMessageBytes, topic, largest, c.cfg.MaxRecordBytes)
	default:
		d.ok(name, "topic %q takes dead letters of up to %d bytes; larger ones are cut", topic, largest)
	}
}

// topic checks that a topic is writable, now or after its creation.
func (d *doctor) topic(ctx context.Context, c *cluster, name, topic string) {
	state, err := c.lookup(ctx, topic)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition) && !c.cfg.CreateTopics:
		d.fail(name, failure.Configf(sink.CreateCommand(c.cfg, topic), "topic %q does not exist, and sink.kafka.create_topics is false", topic))
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		if err := c.creatable(ctx, topic); err != nil {
			d.fail(name, err)
			return
		}
		d.ok(name, "topic %q does not exist; run will create it", topic)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		d.fail(name, failure.Configf(c.cfg.Tools().Allow("Describe --operation Write", topic), "topic %q: %w", topic, err))
	case err != nil:
		d.fail(name, fmt.Errorf("topic %q: %w", topic, err))
	case !state.may(kmsg.ACLOperationWrite):
		d.fail(name, failure.Configf(c.cfg.Tools().Allow("Write", topic), "topic %q exists, but the broker does not allow to write to it", topic))
	case c.cfg.Delivery == sink.DeliveryExactlyOnce && !state.may(kmsg.ACLOperationRead):
		d.warn(name, c.cfg.Tools().Allow("Read", topic),
			"topic %q, %d partitions, may be written to, but not read: if brokers commit a Kafka transaction in a part of its partitions only, it cannot be told which events consumers see already", topic, state.partitions)
	default:
		d.ok(name, "topic %q, %d partitions, may be written to", topic, state.partitions)
	}
}

// quarantineTopic checks the topic of parked events, and counts them.
func (d *doctor) quarantineTopic(ctx context.Context, c *cluster) {
	const name = "kafka.quarantine_topic"
	if d.cfg.Errors.OnBadEvent != transform.BadEventQuarantine {
		d.skip(name, "errors.on_bad_event is "+d.cfg.Errors.OnBadEvent)
		return
	}
	if !d.keptTopic(ctx, c, name, wiring.QuarantineTopic(d.cfg)) {
		return
	}
	list, err := ListQuarantine(ctx, d.cfg, QuarantineOptions{Timeout: checkPatience})
	switch {
	case err != nil:
		d.fail("kafka.quarantine", err)
	case list.changed != nil:
		d.fail("kafka.quarantine", list.changed)
	case list.Keys > 0:
		d.warn("kafka.quarantine", "cdc-outbox quarantine list", "%d keys are parked, with %d events of at most %d: they do not flow", list.Keys, list.Events, list.Limit)
	default:
		d.ok("kafka.quarantine", "nothing is parked")
	}
}

// checkpointTopic checks that the topic may be used or created. Its suitability
// for keeping a checkpoint is the store's to judge, see checkpoint.
func (d *doctor) checkpointTopic(ctx context.Context, c *cluster) {
	before := d.report.count(Fail)
	d.keptTopic(ctx, c, "kafka.checkpoint_topic", wiring.CheckpointTopic(d.cfg))
	d.refused = d.report.count(Fail) > before
}

// keptTopic checks a topic that run reads and writes, and creates. It returns whether the
// topic exists, and may be used.
func (d *doctor) keptTopic(ctx context.Context, c *cluster, name, topic string) (usable bool) {
	state, err := c.lookup(ctx, topic)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		if err := c.creatable(ctx, topic); err != nil {
			d.fail(name, err)
			return false
		}
		d.ok(name, "topic %q does not exist; run will create it, compacted", topic)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		d.fail(name, failure.Configf(c.cfg.Tools().Allow(store.TopicOperations, topic), "topic %q: %w", topic, err))
	case err != nil:
		d.fail(name, fmt.Errorf("topic %q: %w", topic, err))
	case !state.may(kmsg.ACLOperationWrite) || !state.may(kmsg.ACLOperationRead):
		d.fail(name, failure.Configf(c.cfg.Tools().Allow(store.TopicOperations, topic), "the broker does not allow to read and write topic %q", topic))
	default:
		d.ok(name, "topic %q may be read and written to", topic)
		return true
	}
	return false
}

// cluster asks a Kafka cluster.
type cluster struct {
	cfg      sink.Options
	client   *kgo.Client
	patience time.Duration // bounds the attempts to reach any broker; 0: connect sets a bound
}

// newCluster takes a configuration with a Kafka.
func newCluster(cfg *config.Config) *cluster { return &cluster{cfg: *cfg.Sink.Kafka} }

// Bounds of the attempts to reach any broker: each silent address takes some time until
// the next is asked.
const (
	leastPatience = 8 * time.Second
	mostPatience  = 16 * time.Second // check has 20 s for all of Kafka
)

func (c *cluster) connect(ctx context.Context) error {
	opts, err := sink.ClientOpts(c.cfg)
	if err != nil {
		return err
	}
	if c.patience == 0 {
		c.patience = min(max(leastPatience, broker.Patience(ctx, c.cfg.Brokers)+time.Second), mostPatience)
	}
	if c.client, err = broker.Connect(opts...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	_, err = await.Answer(ctx, func() (struct{}, error) { return struct{}{}, c.client.Ping(ctx) })
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // the client only says that the call was ended
			err = fmt.Errorf("no broker answered within %s", c.patience)
		}
		err = sink.Unreachable(c.cfg, err)
	} else {
		err = sink.Reach(ctx, c.client, c.cfg)
	}
	if err != nil {
		c.client.Close()
		return fmt.Errorf("connect to Kafka at %s: %w", strings.Join(c.cfg.Brokers, ", "), err)
	}
	return nil
}

// topicState is the cluster's answer about a topic.
type topicState struct {
	partitions int
	replicas   int   // the fewest of a partition
	operations int32 // bits numbered as kmsg.ACLOperation
}

// may reports whether the operation is allowed, as far as the broker tells.
func (s topicState) may(op kmsg.ACLOperation) bool {
	return broker.Permits(s.operations, op)
}

// lookup never creates the topic.
func (c *cluster) lookup(ctx context.Context, topic string) (topicState, error) {
	answer, err := broker.Topic(ctx, c.client, topic)
	if err != nil {
		return topicState{}, err
	}
	state := topicState{partitions: len(answer.Partitions), operations: answer.AuthorizedOperations}
	for i, p := range answer.Partitions {
		if n := len(p.Replicas); i == 0 || n < state.replicas {
			state.replicas = n
		}
	}
	return state, nil
}

// creatable asks the cluster to check a topic's creation without doing it.
func (c *cluster) creatable(ctx context.Context, topic string) error {
	_, err := c.validate(ctx, c.cfg, topic)
	switch {
	case err == nil, errors.Is(err, kerr.TopicAlreadyExists):
		return nil
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return failure.Configf(c.cfg.Tools().Allow("Create", topic)+", or create it: "+sink.CreateCommand(c.cfg, topic),
			"topic %q does not exist and may not be created: %w", topic, err)
	}
	return failure.Configf(sink.CreateCommand(c.cfg, topic), "topic %q does not exist and could not be created: %w", topic, err)
}

// validate asks the cluster about a topic's creation.
func (c *cluster) validate(ctx context.Context, cfg sink.Options, topic string) (*kmsg.CreateTopicsResponseTopic, error) {
	return broker.TryTopic(ctx, c.client, sink.NewTopic(cfg, topic), c.patience)
}
