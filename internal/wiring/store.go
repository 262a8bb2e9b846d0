// Package wiring makes the parts the configuration describes, in the same way
// for run, for the operator's verbs and for the demo.
//
// Non-goals: validation (config), running parts.
package wiring

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/quarantine"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// OpenStore opens the configured checkpoint store, and creates the topic or
// table where missing. It blocks until the store answers or ctx ends.
func OpenStore(ctx context.Context, cfg *config.Config) (checkpoint.Store, error) {
	key, err := cfg.StoreKey()
	if err != nil {
		return nil, err
	}
	var kafka []kgo.Opt
	var tools broker.Tools
	if cfg.Checkpoint.Store == store.StoreKafka {
		if kafka, err = sink.ClientOpts(*cfg.Sink.Kafka); err != nil {
			return nil, err
		}
		tools = cfg.Sink.Kafka.Tools()
	}
	store, err := store.Open(ctx, cfg.Checkpoint, key, kafka, tools, cfg.Source.URL.Reveal())
	if err != nil {
		return nil, fmt.Errorf("open checkpoint store: %w", explain(cfg, err))
	}
	return store, nil
}

// LookStore opens the configured checkpoint store for a look at other connectors'
// checkpoints, without its topic being made. A table must exist.
func LookStore(ctx context.Context, cfg *config.Config) (checkpoint.Store, error) {
	if cfg.Checkpoint.Store != store.StoreKafka {
		return OpenStore(ctx, cfg)
	}
	kafka, err := sink.ClientOpts(*cfg.Sink.Kafka)
	if err != nil {
		return nil, err
	}
	return store.LookKafka(kafka, cfg.Checkpoint.Topic, CheckpointKey(cfg), cfg.Sink.Kafka.Tools())
}

// explain adds the remedy for a store not answering.
func explain(cfg *config.Config, err error) error {
	if cfg.Checkpoint.Store == store.StoreKafka {
		return sink.Unreachable(*cfg.Sink.Kafka, err)
	}
	if failure.ClassOf(err) != failure.Transient || failure.RemedyOf(err) != "" {
		return err
	}
	return &failure.Error{Class: failure.Transient, Remedy: "start PostgreSQL, or correct source.url", Err: err}
}

// ExactlyOnce tells whether the checkpoint is written in the Kafka transactions
// of the events.
func ExactlyOnce(cfg *config.Config) bool {
	return cfg.Sink.Kafka != nil && cfg.Sink.Kafka.Delivery == sink.DeliveryExactlyOnce
}

// CheckpointTopic is the topic the checkpoint is kept in.
func CheckpointTopic(cfg *config.Config) string {
	return store.Topic(cfg.Checkpoint.Topic, CheckpointKey(cfg))
}

// QuarantineTopic is the topic of parked events.
func QuarantineTopic(cfg *config.Config) string {
	return store.Topic(cfg.Errors.QuarantineTopic, CheckpointKey(cfg))
}

// OpenQuarantine opens the log of parked events. The configuration has a Kafka.
func OpenQuarantine(cfg *config.Config) (*quarantine.Log, error) {
	return openQuarantine(cfg, QuarantineTopic(cfg))
}

func openQuarantine(cfg *config.Config, topic string) (*quarantine.Log, error) {
	opts, err := sink.ClientOpts(*cfg.Sink.Kafka)
	if err != nil {
		return nil, err
	}
	return quarantine.Open(opts, topic, cfg.Sink.Kafka.Tools())
}

// Rules are the settings behind topic and key of an event.
func Rules(cfg *config.Config) string { return transform.Rules(cfg.Event, cfg.Route) }

// quarantineInUse is the topic of parked events; "": none are parked.
func quarantineInUse(cfg *config.Config) string {
	if cfg.Errors.OnBadEvent != transform.BadEventQuarantine {
		return ""
	}
	return QuarantineTopic(cfg)
}

// leftPatience bounds the read of a topic with parked events.
const leftPatience = 30 * time.Second

// LeftParked is the error of events parked in the topic, if the topic is out of use. The
// checkpoint names the topic; "": there is none.
func LeftParked(ctx context.Context, cfg *config.Config, topic string) error {
	used := quarantineInUse(cfg)
	if topic == "" || topic == used {
		return nil
	}
	contents, err := parkedIn(ctx, cfg, topic)
	if err != nil {
		return err
	}
	if used != "" {
		return contents.Left(topic, fmt.Sprintf("errors.quarantine_topic leads to topic %q now", used))
	}
	return contents.Left(topic, fmt.Sprintf("errors.on_bad_event is %s now", cfg.Errors.OnBadEvent))
}

// LeftBehind is the error of a connector of the same tables under another name with parked
// events or an accepted gap: the present one would know of neither.
func LeftBehind(ctx context.Context, cfg *config.Config, f *checkpoint.Former) error {
	if err := f.Unmended(); err != nil {
		return err
	}
	if f.Quarantine == "" || f.Quarantine == quarantineInUse(cfg) || cfg.Sink.Kafka == nil {
		return nil
	}
	contents, err := parkedIn(ctx, cfg, f.Quarantine)
	if err != nil {
		return err
	}
	return contents.LeftBy(f)
}

// parkedIn reads a topic of parked events.
func parkedIn(ctx context.Context, cfg *config.Config, topic string) (*quarantine.Contents, error) {
	log, err := openQuarantine(cfg, topic)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, leftPatience, fmt.Errorf("no answer within %s", leftPatience))
	defer cancel()
	contents, err := log.Read(ctx, quarantine.None)
	if err != nil {
		return nil, sink.Unreachable(*cfg.Sink.Kafka, err)
	}
	return contents, nil
}

// EnsureQuarantine checks the topic of parked events, or creates it. Like the topic of dead
// letters it takes events that are too large for their own topics.
func EnsureQuarantine(ctx context.Context, cfg *config.Config, log *quarantine.Log) error {
	largest := sink.ForDeadLetters(*cfg.Sink.Kafka).TopicConfig[sink.MaxMessageBytes]
	if err := log.Ensure(ctx, map[string]string{sink.MaxMessageBytes: largest}); err != nil {
		return sink.Unreachable(*cfg.Sink.Kafka, err)
	}
	return nil
}

// TransactionalID is the pipeline's at the brokers. The same for all instances
// and starts of a pipeline, as the checkpoint's key is.
func TransactionalID(cfg *config.Config) (string, error) {
	key, err := cfg.StoreKey()
	return "cdc-outbox/" + key, err
}

// CheckpointKey names the checkpoint in the store.
func CheckpointKey(cfg *config.Config) string {
	key, _ := cfg.StoreKey() // a URL that cannot be read is the connection's error
	return key
}
