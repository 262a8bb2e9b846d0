package store

import (
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/internal/sqltext"
)

// Options say where the acked position is kept beside the slot, as the section
// checkpoint has them.
type Options struct {
	// Store is StoreKafka, StorePostgres, StoreFile or StoreNone.
	Store string `yaml:"store"`
	Topic string `yaml:"topic"` // StoreKafka
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

// DefaultOptions are what an empty section means.
func DefaultOptions() Options {
	return Options{
		Store:    StoreKafka,
		Topic:    "cdc-outbox.checkpoints",
		Table:    "cdc_outbox_checkpoints",
		Interval: 100 * time.Millisecond,
	}
}

// Validate reports what cannot work.
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

// SQLTable is Table as SQL, and the schema in it as SQL; none where search_path
// leads to it.
func (o *Options) SQLTable() (table, schema string) {
	t, err := pg.ParseTable(o.Table)
	switch {
	case err != nil:
		return o.Table, "" // PostgreSQL has more to say about it
	case !strings.Contains(o.Table, "."):
		return sqltext.Name(t.Name), ""
	}
	return t.Quoted(), sqltext.Name(t.Schema)
}
