// Package config holds the connector's whole configuration in a single struct:
// its defaults, sources, validation and redaction.
//
// The loader is our own. It tells the line of each value, all problems at once
// with a remedy each, and never a secret; it merges pipelines, variables and
// flags by the yaml tags of the parts' options alone. Libraries for
// configuration do not: they decode first, so that 0123 is a number by then,
// and stop at the first error.
//
// Invariants:
//
//  1. A Config returned by Load has passed Validate: no other package checks a
//     value again.
//  2. Load reports every problem it finds at once, each with key, value and
//     remedy.
//  3. A Secret never shows its value through fmt, JSON, YAML or a log.
//
// Non-goals: when to look again at the sources of pipelines, see Look.Changed.
package config

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/claimcheck"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
	"github.com/cdc-outbox/cdc-outbox/internal/page"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/internal/tracing"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Config is everything a connector can be told. The YAML keys are the public
// contract; an environment variable overrides a key under the key's path, e.g.
// CDC_OUTBOX_SOURCE_URL for source.url.
type Config struct {
	Source     Source                 `yaml:"source"`
	Event      transform.EventOptions `yaml:"event"`
	Route      transform.RouteOptions `yaml:"route"`
	Sink       Sink                   `yaml:"sink"`
	Encoding   registry.Options       `yaml:"encoding"`
	ClaimCheck claimcheck.Options     `yaml:"claim_check"`
	Checkpoint store.Options          `yaml:"checkpoint"`
	Errors     Errors                 `yaml:"errors"`
	Retention  retention.Options      `yaml:"retention"`
	Fleet      fleet.Options          `yaml:"fleet"`
	Tracing    tracing.Options        `yaml:"tracing"`
	HTTP       page.Options           `yaml:"http"`
	Log        Log                    `yaml:"log"`
	Discovery  Discovery              `yaml:"discovery"`
	// Pipelines are several connectors in a single process, by name under the
	// key pipelines; empty for a single connector, which the rest describes.
	// With pipelines, the rest holds what they have in common.
	Pipelines []Pipeline `yaml:"-"`
	// Look is where the pipelines come from, if they come and go; otherwise nil.
	Look *Look `yaml:"-"`
}

// Source names the database, tables, slot and publication to read.
type Source struct {
	// URL is a libpq connection string, as a URL or as key=value pairs.
	// Required.
	URL setting.Secret `yaml:"url"`
	// Standbys are the hosts of a possible failover missing from URL, each as host
	// or host:port. Only the copy of the slot is looked at there.
	Standbys []string `yaml:"standbys"`
	// Password is written as it is, without any encoding. A password in the URL
	// prevails. Validate puts the password into the URL.
	Password setting.Secret `yaml:"password"`
	// Auth is one of catalog.Auths: the kind of login. Validate puts the login into
	// the URL.
	Auth string `yaml:"auth"`
	// Tables are the outbox tables, each as pg.ParseTable reads it. With
	// ModeMessage they are read beside the messages, and there is none by
	// default.
	Tables []pg.Table `yaml:"tables"`
	// Slots are those of all pipelines of the process, in common.
	Slots       []string `yaml:"-"`
	Slot        string   `yaml:"slot"`
	Publication string   `yaml:"publication"`
	// Create makes run create a missing publication and slot on a first start, and
	// never recreate a lost slot.
	Create bool `yaml:"create"`
	// Mode is ModeWAL, ModeMessage or ModePoll. With ModePoll there is neither a
	// slot nor a publication.
	Mode string `yaml:"mode"`
	// MessagePrefix is the prefix of the events among the logical messages, with
	// ModeMessage; others are ignored.
	MessagePrefix string `yaml:"message_prefix"`
	// Snapshot is SnapshotNever or SnapshotInitial: whether the rows in the table
	// when the slot is created are published too.
	Snapshot string `yaml:"snapshot"`
	// Failover is FailoverNew or FailoverAlways: which slots standbys of
	// PostgreSQL 17 copy, the slots made by the connector or also an existing one.
	Failover string `yaml:"failover"`
	// Visibility is VisibilityNone or VisibilityWait: whether an event is held back
	// until a new transaction on the primary sees its row. With ModePoll that is
	// always so.
	Visibility string `yaml:"visibility"`
	// StatusInterval is the longest time between two standby status updates.
	// StatusInterval must be well below the server's wal_sender_timeout.
	StatusInterval time.Duration `yaml:"status_interval"`
	// LivenessTimeout is how long the server may stay silent, although asked
	// for a reply, before the connection counts as dead.
	LivenessTimeout time.Duration `yaml:"liveness_timeout"`
	Poll            poll.Options  `yaml:"poll"`
	// Rack is the zone of the database: in a fleet, members of that zone are preferred.
	Rack string `yaml:"rack"`
}

// Values of Source.Mode, Source.Snapshot, Source.Failover and Source.Visibility.
const (
	ModeWAL     = "wal"
	ModeMessage = "message"
	ModePoll    = "poll"

	SnapshotNever   = "never"
	SnapshotInitial = "initial"

	FailoverNew    = "new"
	FailoverAlways = "always"

	VisibilityNone = "none"
	VisibilityWait = "wait"
)

// Sink is the destination of records: exactly one member is set.
type Sink struct {
	Kafka  *sink.Options `yaml:"kafka"`
	Stdout *Stdout       `yaml:"stdout"`
}

// Stdout writes JSON lines to standard output. Stdout has no options.
type Stdout struct{}

// Errors is the policy for events that cannot be published unchanged.
type Errors struct {
	// OnBadEvent is transform.BadEventStop, BadEventQuarantine, BadEventDeadLetter or
	// BadEventSkip.
	OnBadEvent      string `yaml:"on_bad_event"`
	DeadLetterTopic string `yaml:"dead_letter_topic"`
	// QuarantineTopic begins the name of the topic of parked events: see store.Topic.
	QuarantineTopic string `yaml:"quarantine_topic"`
	// QuarantineLimit is the most events parked; the next stops the pipeline.
	QuarantineLimit int `yaml:"quarantine_limit"`
	// DrainTimeout bounds how long a stop waits for records in flight.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
	// OnLoss is LossStop or LossRepair.
	OnLoss string `yaml:"on_loss"`
}

// Values of Errors.OnLoss: what follows a loss of log.
const (
	LossStop   = "stop"
	LossRepair = "repair"
)

// Log says how to log to standard error.
type Log struct {
	Level  string `yaml:"level"`  // debug | info | warn | error
	Format string `yaml:"format"` // json | console
}

// Default returns the configuration an empty file means. Sink.Kafka is set
// unless the file names another sink.
func Default() Config {
	return Config{
		Source: Source{
			Auth:            catalog.AuthPassword,
			Tables:          []pg.Table{{Schema: "public", Name: "outbox"}},
			Slot:            "cdc_outbox",
			Publication:     "cdc_outbox",
			Create:          true,
			Mode:            ModeWAL,
			MessagePrefix:   "outbox",
			Snapshot:        SnapshotNever,
			Failover:        FailoverNew,
			Visibility:      VisibilityNone,
			StatusInterval:  time.Second,
			LivenessTimeout: time.Minute,
			Poll:            poll.DefaultOptions(),
		},
		Event:      transform.DefaultEvent(),
		Route:      defaultRoute(),
		Sink:       Sink{Kafka: sink.DefaultOptions()},
		Encoding:   registry.DefaultOptions(),
		ClaimCheck: claimcheck.DefaultOptions(),
		Checkpoint: store.DefaultOptions(),
		Errors: Errors{
			OnBadEvent:      transform.BadEventStop,
			OnLoss:          LossStop,
			DeadLetterTopic: "outbox.dead-letter",
			QuarantineTopic: quarantineTopic,
			QuarantineLimit: 10000,
			DrainTimeout:    20 * time.Second,
		},
		Retention: retention.DefaultOptions(),
		Fleet:     fleet.DefaultOptions(),
		Tracing:   tracing.DefaultOptions(),
		HTTP:      page.DefaultOptions(),
		Log:       Log{Level: "info", Format: "json"},
		Discovery: DefaultDiscovery(),
	}
}

// quarantineTopic is the default of errors.quarantine_topic.
const quarantineTopic = "cdc-outbox.quarantine"

func defaultRoute() transform.RouteOptions {
	route := transform.DefaultRoute()
	route.Internal = internalTopics(nil)
	return route
}
