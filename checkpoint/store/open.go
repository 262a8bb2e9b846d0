package store

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Open opens the store chosen in cfg. key names the checkpoint where cfg.Key is
// empty; by convention, key is database/slot. kafka and tools are for StoreKafka,
// see NewKafka, and url is the database for StorePostgres; the other stores ignore
// them. Open blocks until the store answers or ctx ends.
func Open(ctx context.Context, cfg Options, key string, kafka []kgo.Opt, tools broker.Tools, url string) (checkpoint.Store, error) {
	if cfg.Key != "" {
		key = cfg.Key
	}
	switch cfg.Store {
	case StoreKafka:
		return NewKafka(ctx, kafka, cfg.Topic, key, tools)
	case StorePostgres:
		return NewPostgres(ctx, url, cfg.Table, key)
	case StoreFile:
		return NewFile(cfg.Path, key)
	case StoreNone:
		return none{}, nil
	}
	return nil, fmt.Errorf("checkpoint.store: unknown store %q", cfg.Store)
}

// Options say where the acked position is kept beside the slot: the section
// checkpoint of the configuration.
type Options struct {
	// Store is StoreKafka, StorePostgres, StoreFile or StoreNone.
	Store string `yaml:"store"`
	Topic string `yaml:"topic"` // StoreKafka: the beginning of the topics' names, see Topic
	Table string `yaml:"table"` // StorePostgres
	Path  string `yaml:"path"`  // StoreFile
	// Key names this connector's checkpoint among others in the same store;
	// empty means database/slot.
	Key string `yaml:"key"`
	// Interval is the longest time between an ack and its checkpoint and
	// confirmation.
	Interval time.Duration `yaml:"interval"`
}

// Values of Options.Store.
const (
	StoreKafka    = "kafka"
	StorePostgres = "postgres"
	StoreFile     = "file"
	StoreNone     = "none"
)

// DefaultOptions are the options of an empty section.
func DefaultOptions() Options {
	return Options{
		Store:    StoreKafka,
		Topic:    "cdc-outbox.checkpoints",
		Table:    "cdc_outbox_checkpoints",
		Interval: 100 * time.Millisecond,
	}
}

// Validate reports impossible options.
func (o *Options) Validate(report setting.Report) {
	report.OneOf("checkpoint.store", o.Store, StoreKafka, StorePostgres, StoreFile, StoreNone)
	report.Between("checkpoint.interval", o.Interval, time.Millisecond, time.Minute)
	switch o.Store {
	case StoreKafka:
		report.Topic("checkpoint.topic", o.Topic)
	case StorePostgres:
		if _, err := pg.ParseTable(o.Table); err != nil {
			report.Problem("checkpoint.table", err.Error(), pg.TableRemedy)
		}
	case StoreFile:
		if o.Path == "" {
			report.Problem("checkpoint.path", "is required by checkpoint.store: file", "name a file on a disk that survives a restart")
		}
	}
}

// none keeps nothing. There is only the slot's own confirmed position, and nobody
// notices a recreated or advanced slot.
type none struct{}

func (none) Load(context.Context) (checkpoint.Checkpoint, bool, error) {
	return checkpoint.Checkpoint{}, false, nil
}
func (none) Save(context.Context, checkpoint.Checkpoint) error { return nil }
func (none) Close()                                            {}

// ShareRemedy is the way to a common checkpoint for all instances of a connector.
func ShareRemedy(cfg Options) string {
	if cfg.Store == StoreFile {
		return "instances on several machines must see one file: put checkpoint.path (" + cfg.Path + ") on storage that they share, " +
			"or set checkpoint.store to kafka or postgres on all of them"
	}
	return "give all instances of the connector the same checkpoint.store, with the same topic or table, and checkpoint.key"
}

// OwnFile adds another possible reason to a loss found by Verify, where the
// checkpoint is in a file: an instance on another machine, with another file, has
// read the slot.
func OwnFile(err error, cfg Options, stored *checkpoint.Checkpoint, slot catalog.Slot) error {
	if cfg.Store != StoreFile || failure.ClassOf(err) != failure.Loss || stored == nil || slot.ConfirmedFlush <= stored.LSN {
		return err
	}
	return failure.Lossf("if an instance on another machine read the slot meanwhile, nothing is missing: copy its checkpoint file here; "+ShareRemedy(cfg)+
		". Otherwise "+failure.RemedyOf(err),
		"%w; or it was read by an instance on another machine that keeps its checkpoint in a file of its own, and %s is old", err, cfg.Path)
}

// SQLTable is Table as SQL, and its schema as SQL. A name without a schema is in
// public here; see LocateTable.
func (o *Options) SQLTable() (table, schema string) {
	t, err := pg.ParseTable(o.Table)
	if err != nil {
		return o.Table, "" // PostgreSQL has the better error
	}
	return t.Quoted(), pgsql.Name(t.Schema)
}
