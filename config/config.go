// Package config holds the connector's whole configuration in one struct: its
// defaults, where it is read from, its validation and its redaction.
//
// Invariants:
//
//  1. A Config returned by Load has passed Validate: no other package checks a
//     value again.
//  2. Load reports every problem it finds at once, each naming key, value and
//     remedy.
//  3. A Secret never shows its value through fmt, JSON, YAML or a log.
//
// Non-goals: reading a Debezium connector's configuration, reloading at run
// time.
package config

import "time"

// Config is everything a connector can be told. The YAML keys are the public
// contract; an environment variable overrides a key under the key's path, e.g.
// CDC_OUTBOX_SOURCE_URL for source.url.
type Config struct {
	Source     Source     `yaml:"source"`
	Event      Event      `yaml:"event"`
	Route      Route      `yaml:"route"`
	Sink       Sink       `yaml:"sink"`
	Checkpoint Checkpoint `yaml:"checkpoint"`
	Errors     Errors     `yaml:"errors"`
	Retention  Retention  `yaml:"retention"`
	HTTP       HTTP       `yaml:"http"`
	Log        Log        `yaml:"log"`
	// Pipelines are several connectors in one process, by name under the key
	// pipelines; empty for one connector, which the rest describes. With
	// pipelines, the rest holds what they have in common.
	Pipelines []Pipeline `yaml:"-"`
}

// Source says which database, tables, slot and publication to read.
type Source struct {
	// URL is a libpq connection string, as a URL or as key=value pairs.
	// Required.
	URL Secret `yaml:"url"`
	// Tables are the outbox tables, each as schema.table; SQL quoting rules
	// apply ("My Schema"."Outbox"). The schema may be left out and is then
	// public. With ModeMessage they are read beside the messages, and there is
	// none by default.
	Tables      []string `yaml:"tables"`
	Slot        string   `yaml:"slot"`
	Publication string   `yaml:"publication"`
	// Create makes run create the publication and the slot where they are
	// missing on a first start. It never recreates a slot that was lost.
	Create bool `yaml:"create"`
	// Mode is ModeWAL, ModeMessage or ModePoll. With ModePoll there is neither a
	// slot nor a publication.
	Mode string `yaml:"mode"`
	// MessagePrefix is that of the logical messages which are events, with
	// ModeMessage; others are ignored.
	MessagePrefix string `yaml:"message_prefix"`
	// Snapshot is SnapshotNever or SnapshotInitial: whether the rows that are
	// in the table when the slot is created are published too.
	Snapshot string `yaml:"snapshot"`
	// StatusInterval is the longest time between two standby status updates.
	// It must be well below the server's wal_sender_timeout.
	StatusInterval time.Duration `yaml:"status_interval"`
	// LivenessTimeout is how long the server may stay silent, although asked
	// for a reply, before the connection counts as dead.
	LivenessTimeout time.Duration `yaml:"liveness_timeout"`
	Poll            Poll          `yaml:"poll"`
}

// Values of Source.Mode and Source.Snapshot.
const (
	ModeWAL     = "wal"
	ModeMessage = "message"
	ModePoll    = "poll"

	SnapshotNever   = "never"
	SnapshotInitial = "initial"
)

// Event says which columns make the record; the Debezium Outbox Event
// Router's options under plain names. An empty column name is detected:
// Debezium's names first, then the snake-case ones.
type Event struct {
	ID      string `yaml:"id"`
	Key     string `yaml:"key"`
	Type    string `yaml:"type"`
	Payload string `yaml:"payload"`
	// Timestamp is the column for the record timestamp; empty means the
	// commit time.
	Timestamp string `yaml:"timestamp"`
	// SchemaVersion is an int column for the header schemaVersion; empty means
	// no such header.
	SchemaVersion string `yaml:"schema_version"`
	// Tracing is a column with a W3C traceparent or Debezium's
	// tracingspancontext; empty means detect by those two names.
	Tracing string `yaml:"tracing"`
	// Headers is a json or jsonb column whose object's members become headers;
	// empty means detect by the name headers, HeadersNone that there is none.
	Headers string `yaml:"headers"`
	// Additional fields, each "column:header|envelope|partition[:alias]".
	Additional []string `yaml:"additional"`
	// AdditionalMissing is MissingError or MissingIgnore: what an additional
	// column that the table lacks means.
	AdditionalMissing string `yaml:"additional_missing"`
	// PayloadFormat is FormatRaw, FormatJSON or FormatJSONExpanded.
	PayloadFormat           string `yaml:"payload_format"`
	TombstoneOnEmptyPayload bool   `yaml:"tombstone_on_empty_payload"`
	// NullBehavior (ignore | optional_bytes) and EmptyArrayBehavior (ignore |
	// optional_string) rule null members and empty arrays under
	// FormatJSONExpanded.
	NullBehavior       string `yaml:"null_behavior"`
	EmptyArrayBehavior string `yaml:"empty_array_behavior"`
	// NullKey is NullKeyBadEvent or NullKeyPublish: whether a row with a NULL
	// or empty key is a bad event or is published with that key, as Debezium
	// does.
	NullKey string `yaml:"null_key"`
	// InvalidJSON is InvalidJSONBadEvent or InvalidJSONPublish: whether a
	// payload that starts like JSON but is not is a bad event under
	// FormatJSONExpanded, or is published as a JSON string, as Debezium does.
	InvalidJSON string `yaml:"invalid_json"`
	// OnUpdate is what an UPDATE of an outbox row means: warn, error or fatal.
	// All drop it, only fatal stops.
	OnUpdate string `yaml:"on_update"`
	// PositionHeaders turns the headers cdc-lsn, cdc-seq and cdc-xid on.
	PositionHeaders bool `yaml:"position_headers"`
	// TypeHeader is the header that carries the event type; empty means no
	// such header.
	TypeHeader string `yaml:"type_header"`
}

// HeadersNone as Event.Headers turns the headers column off.
const HeadersNone = "-"

// Values of the enumerations in Event.
const (
	FormatRaw          = "raw"
	FormatJSON         = "json"
	FormatJSONExpanded = "json_expanded"

	MissingError  = "error"
	MissingIgnore = "ignore"

	NullIgnore               = "ignore"
	NullOptionalBytes        = "optional_bytes"
	EmptyArrayIgnore         = "ignore"
	EmptyArrayOptionalString = "optional_string"

	NullKeyBadEvent = "bad_event"
	NullKeyPublish  = "publish"

	InvalidJSONBadEvent = "bad_event"
	InvalidJSONPublish  = "publish"

	UpdateWarn  = "warn"
	UpdateError = "error"
	UpdateFatal = "fatal"
)

// Route says which topic a row goes to.
type Route struct {
	// By is the column whose value is routed; empty means detect.
	By string `yaml:"by"`
	// Regex must match the whole value; Java's (?<name>…) is accepted.
	Regex string `yaml:"regex" substitute:"no"`
	// Topic is the replacement, with ${name} or $1 groups. Without a match the
	// topic is the value itself.
	Topic string `yaml:"topic" substitute:"no"`
}

// Sink is where records go: exactly one of its members is set.
type Sink struct {
	Kafka  *Kafka  `yaml:"kafka"`
	Stdout *Stdout `yaml:"stdout"`
}

// Stdout writes JSON lines to standard output. It has no options.
type Stdout struct{}

// Kafka is the Kafka sink.
type Kafka struct {
	Brokers []string `yaml:"brokers"`
	// Delivery is DeliveryAtLeastOnce; exactly_once is refused until it exists.
	Delivery    string `yaml:"delivery"`
	ClientID    string `yaml:"client_id"`
	Compression string `yaml:"compression"`
	// Linger is how long a record may wait for others to share its batch.
	Linger time.Duration `yaml:"linger"`
	// MaxBufferedBytes bounds the memory of the events between PostgreSQL and
	// the broker's ack: what was made for them, and what they keep of the bytes
	// that were read, which is their rows with all columns at least.
	MaxBufferedBytes int64 `yaml:"max_buffered_bytes" unit:"bytes"`
	// MaxRecordBytes is the largest record that is sent; a larger one is a bad
	// event. Kafka's default limit on the broker (message.max.bytes) is
	// 1048588.
	MaxRecordBytes int32 `yaml:"max_record_bytes" unit:"bytes"`
	// CreateTopics creates missing topics with the three settings below;
	// otherwise MissingTopic decides.
	CreateTopics      bool              `yaml:"create_topics"`
	TopicPartitions   int32             `yaml:"topic_partitions"`   // -1: the broker's default
	ReplicationFactor int16             `yaml:"replication_factor"` // -1: the broker's default
	TopicConfig       map[string]string `yaml:"topic_config"`
	// MissingTopic is MissingTopicWait (hold the stream until somebody creates
	// the topic) or MissingTopicBadEvent (errors.on_bad_event decides).
	MissingTopic string `yaml:"missing_topic"`
	TLS          TLS    `yaml:"tls"`
	SASL         SASL   `yaml:"sasl"`
}

// Values of the enumerations in Kafka.
const (
	DeliveryAtLeastOnce = "at_least_once"
	DeliveryExactlyOnce = "exactly_once"

	MissingTopicWait     = "wait"
	MissingTopicBadEvent = "bad_event"
)

// TLS is on when Enabled is true or any other member is set.
type TLS struct {
	Enabled    bool   `yaml:"enabled"`
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"`
}

// SASL is on when Mechanism is set.
type SASL struct {
	// Mechanism is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or
	// AWS_MSK_IAM.
	Mechanism string `yaml:"mechanism"`
	Username  string `yaml:"username"`
	Password  Secret `yaml:"password"`
	// Token is a fixed OAUTHBEARER token; otherwise TokenURL with ClientID and
	// ClientSecret is asked for one (client credentials grant, RFC 6749 §4.4).
	Token        Secret   `yaml:"token"`
	TokenURL     string   `yaml:"token_url"`
	ClientID     string   `yaml:"client_id"`
	ClientSecret Secret   `yaml:"client_secret"`
	Scopes       []string `yaml:"scopes"`
	// AccessKey, SecretKey and SessionToken are for AWS_MSK_IAM; when empty,
	// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN are read.
	AccessKey    string `yaml:"access_key"`
	SecretKey    Secret `yaml:"secret_key"`
	SessionToken Secret `yaml:"session_token"`
}

// Checkpoint says where the acked position is kept beside the slot.
type Checkpoint struct {
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

// Values of Checkpoint.Store.
const (
	StoreKafka    = "kafka"
	StorePostgres = "postgres"
	StoreFile     = "file"
	StoreNone     = "none"
)

// Errors is the policy for events that can never be published as they are.
type Errors struct {
	// OnBadEvent is BadEventStop, BadEventDeadLetter or BadEventSkip.
	OnBadEvent      string `yaml:"on_bad_event"`
	DeadLetterTopic string `yaml:"dead_letter_topic"`
	// DrainTimeout bounds how long a stop waits for records in flight.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
}

// Values of Errors.OnBadEvent.
const (
	BadEventStop       = "stop"
	BadEventDeadLetter = "dead_letter"
	BadEventSkip       = "skip"
)

// HTTP is the observability endpoint; an empty Listen turns it off.
type HTTP struct {
	Listen string `yaml:"listen"`
}

// Log says how to log to standard error.
type Log struct {
	Level  string `yaml:"level"`  // debug | info | warn | error
	Format string `yaml:"format"` // json | console
}

// Default returns the configuration that an empty file means. Sink.Kafka is
// set unless the file names another sink.
func Default() Config {
	return Config{
		Source: Source{
			Tables:          []string{"public.outbox"},
			Slot:            "cdc_outbox",
			Publication:     "cdc_outbox",
			Create:          true,
			Mode:            ModeWAL,
			MessagePrefix:   "outbox",
			Snapshot:        SnapshotNever,
			StatusInterval:  time.Second,
			LivenessTimeout: time.Minute,
			Poll:            defaultPoll(),
		},
		Event: Event{
			AdditionalMissing:  MissingError,
			PayloadFormat:      FormatRaw,
			NullBehavior:       NullIgnore,
			EmptyArrayBehavior: EmptyArrayIgnore,
			NullKey:            NullKeyBadEvent,
			InvalidJSON:        InvalidJSONBadEvent,
			OnUpdate:           UpdateWarn,
			PositionHeaders:    true,
			TypeHeader:         "eventType",
		},
		Route: Route{
			Regex: "(?<routedByValue>.*)",
			Topic: "outbox.event.${routedByValue}",
		},
		Sink: Sink{Kafka: DefaultKafka()},
		Checkpoint: Checkpoint{
			Store:    StoreKafka,
			Topic:    "cdc-outbox.checkpoints",
			Table:    "cdc_outbox_checkpoints",
			Interval: 100 * time.Millisecond,
		},
		Errors: Errors{
			OnBadEvent:      BadEventStop,
			DeadLetterTopic: "outbox.dead-letter",
			DrainTimeout:    20 * time.Second,
		},
		Retention: defaultRetention(),
		HTTP:      HTTP{Listen: "127.0.0.1:8080"},
		Log:       Log{Level: "info", Format: "json"},
	}
}

// DefaultKafka returns the Kafka sink's defaults.
func DefaultKafka() *Kafka {
	return &Kafka{
		Brokers:           []string{"localhost:9092"},
		Delivery:          DeliveryAtLeastOnce,
		ClientID:          "cdc-outbox",
		Compression:       "snappy",
		Linger:            5 * time.Millisecond,
		MaxBufferedBytes:  8 << 20,
		MaxRecordBytes:    1 << 20,
		TopicPartitions:   -1,
		ReplicationFactor: -1,
		MissingTopic:      MissingTopicWait,
	}
}
