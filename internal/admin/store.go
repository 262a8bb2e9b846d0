package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// loadCheckpoint reads the stored checkpoint into v, without creating its topic
// or table.
func loadCheckpoint(ctx context.Context, cfg *config.Config, v *view) error {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	exists, err := storeExists(ctx, cfg)
	if err != nil || !exists {
		v.looked = err == nil
		return err
	}
	store, err := wiring.OpenStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer store.Close()
	return v.load(ctx, store)
}

// storePatience bounds a write to the store. A write to Kafka would go on for
// as long as a broker may still have taken the record.
var storePatience = 20 * time.Second

// written bounds a write to the store.
func written(ctx context.Context, write func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	err := write(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = &failure.Error{Class: failure.Transient, Err: fmt.Errorf("the checkpoint store has not answered for %s, and may have done it or not: %w", storePatience, err),
			Remedy: "see to the checkpoint store, and repeat the command"}
	}
	return err
}

func saveCheckpoint(ctx context.Context, store checkpoint.Store, cp checkpoint.Checkpoint) error {
	return written(ctx, func(ctx context.Context) error { return store.Save(ctx, cp) })
}

// storeExists tells whether there is a topic or table to look into.
func storeExists(ctx context.Context, cfg *config.Config) (exists bool, err error) {
	switch cfg.Checkpoint.Store {
	case store.StoreKafka:
		c := newCluster(cfg)
		if err := c.connect(ctx); err != nil {
			return false, err
		}
		defer c.client.Close()
		// Any other error is better explained by the store itself.
		_, err := c.lookup(ctx, wiring.CheckpointTopic(cfg))
		return !errors.Is(err, kerr.UnknownTopicOrPartition), nil
	case store.StorePostgres:
		s, err := open(ctx, cfg)
		if err != nil {
			return false, err
		}
		defer s.close()
		if _, exists, err = store.LocateTable(ctx, s.conn, cfg.Checkpoint.Table); err != nil {
			return false, fmt.Errorf("look up checkpoint table: %w", err)
		}
		return exists, nil
	}
	return true, nil
}

// storeWritable makes sure that the store is writable, as far as possible without a
// write; probe is store.Writable or Forgettable.
func storeWritable(ctx context.Context, cfg *config.Config, opened checkpoint.Store, probe func(context.Context, checkpoint.Store) error) error {
	if cfg.Checkpoint.Store != store.StoreKafka {
		return probe(ctx, opened)
	}
	c := newCluster(cfg)
	if err := c.connect(ctx); err != nil {
		return err
	}
	defer c.client.Close()
	topic := wiring.CheckpointTopic(cfg)
	state, err := c.lookup(ctx, topic)
	if err != nil {
		return fmt.Errorf("topic %q: %w", topic, err)
	}
	if !state.may(kmsg.ACLOperationWrite) {
		return failure.Configf(c.cfg.Tools().Allow(store.TopicOperations, topic), "the broker does not allow to write to topic %q", topic)
	}
	return nil
}

// storeName says where the checkpoint is kept.
func storeName(cfg *config.Config) string {
	if cfg.Source.Mode == config.ModePoll {
		return "none: the table is the state"
	}
	switch c := cfg.Checkpoint; c.Store {
	case store.StoreKafka:
		return "Kafka topic " + wiring.CheckpointTopic(cfg)
	case store.StorePostgres:
		return "table " + c.Table
	case store.StoreFile:
		return "file " + c.Path
	}
	return "no store (checkpoint.store is none)"
}
