package store

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
)

// Open opens the store that cfg chooses. key names the checkpoint where cfg.Key
// is empty; by convention it is database/slot. kafka and principal are for
// StoreKafka, see NewKafka, and url the database for StorePostgres; the other stores ignore
// them. It blocks until the store answers or ctx ends.
func Open(ctx context.Context, cfg Options, key string, kafka []kgo.Opt, principal, url string) (checkpoint.Store, error) {
	if cfg.Key != "" {
		key = cfg.Key
	}
	switch cfg.Store {
	case StoreKafka:
		return NewKafka(ctx, kafka, cfg.Topic, key, principal)
	case StorePostgres:
		return NewPostgres(ctx, url, cfg.Table, key)
	case StoreFile:
		return NewFile(cfg.Path, key)
	case StoreNone:
		return none{}, nil
	}
	return nil, fmt.Errorf("checkpoint.store: unknown store %q", cfg.Store)
}
