package transform

import "fmt"

// EventOptions name the columns that make the record; the Debezium Outbox Event
// Router's options under plain names. An empty column name is detected:
// Debezium's names first, then the snake-case ones.
type EventOptions struct {
	ID      string `yaml:"id"`
	Key     string `yaml:"key"`
	Type    string `yaml:"type"`
	Payload string `yaml:"payload"`
	// Timestamp is the column for the record timestamp; if empty, RecordTime
	// decides.
	Timestamp string `yaml:"timestamp"`
	// RecordTime is RecordTimePublished or RecordTimeCommit: the record
	// timestamp where no column gives one.
	RecordTime string `yaml:"record_time"`
	// SchemaVersion is an int column for the header schemaVersion; empty means
	// no such header.
	SchemaVersion string `yaml:"schema_version"`
	// Tracing is a column with a W3C traceparent or Debezium's tracingspancontext;
	// empty: detected by the two names; HeadersNone: none.
	Tracing string `yaml:"tracing"`
	// Headers is a json or jsonb column with an object whose members become
	// headers; empty: detected by the name headers; HeadersNone: none.
	Headers string `yaml:"headers"`
	// Additional fields, each "column:header|envelope|partition[:alias]".
	Additional []string `yaml:"additional"`
	// AdditionalMissing is MissingError or MissingIgnore: the meaning of a missing
	// additional column.
	AdditionalMissing string `yaml:"additional_missing"`
	// KeyFormat is KeyRaw or KeyJSON: the key's text, or JSON.
	KeyFormat string `yaml:"key_format"`
	// PayloadFormat is FormatRaw, FormatJSON or FormatJSONExpanded.
	PayloadFormat           string `yaml:"payload_format"`
	TombstoneOnEmptyPayload bool   `yaml:"tombstone_on_empty_payload"`
	// NullBehavior (ignore | optional_bytes) and EmptyArrayBehavior (ignore |
	// optional_string) rule null members and empty arrays under
	// FormatJSONExpanded.
	NullBehavior       string `yaml:"null_behavior"`
	EmptyArrayBehavior string `yaml:"empty_array_behavior"`
	// NullKey is NullKeyBadEvent or NullKeyPublish: whether a row with a NULL or
	// empty key is a bad event or is published with that key, as by Debezium.
	NullKey string `yaml:"null_key"`
	// InvalidJSON is InvalidJSONBadEvent or InvalidJSONPublish: whether a
	// payload that starts like JSON but is invalid is a bad event under
	// FormatJSONExpanded, or is published as a JSON string, as by Debezium.
	InvalidJSON string `yaml:"invalid_json"`
	// OnUpdate is the meaning of an UPDATE of an outbox row: warn, error or fatal.
	// All three drop it; only fatal stops.
	OnUpdate string `yaml:"on_update"`
	// Compat is CompatNone or CompatDebezium: whether columns have the forms of
	// Debezium's connector, as Handling says.
	Compat      string      `yaml:"compat"`
	Debezium    Handling    `yaml:"debezium"`
	CloudEvents CloudEvents `yaml:"cloudevents"`
	Spans       Spans       `yaml:"-"`
	// PositionHeaders turns the headers cdc-lsn, cdc-seq, cdc-xid and cdc-time on, and
	// keeps their names and cdc-tx-total for the connector.
	PositionHeaders bool `yaml:"position_headers"`
	// TypeHeader is the header carrying the event type; empty means no such
	// header.
	TypeHeader string `yaml:"type_header"`
}

// HeadersNone as EventOptions.Headers or Tracing turns that column off.
const HeadersNone = "-"

// Values of the enumerations in EventOptions.
const (
	FormatRaw          = "raw"
	FormatJSON         = "json"
	FormatJSONExpanded = "json_expanded"

	KeyRaw  = "raw"
	KeyJSON = "json"

	MissingError  = "error"
	MissingIgnore = "ignore"

	NullIgnore               = "ignore"
	NullOptionalBytes        = "optional_bytes"
	EmptyArrayIgnore         = "ignore"
	EmptyArrayOptionalString = "optional_string"

	RecordTimePublished = "published"
	RecordTimeCommit    = "commit"

	NullKeyBadEvent = "bad_event"
	NullKeyPublish  = "publish"

	InvalidJSONBadEvent = "bad_event"
	InvalidJSONPublish  = "publish"

	UpdateWarn  = "warn"
	UpdateError = "error"
	UpdateFatal = "fatal"

	CompatNone     = "none"
	CompatDebezium = "debezium"
)

// RouteOptions choose a row's topic.
type RouteOptions struct {
	// By is the column whose value is routed; empty means detect.
	By string `yaml:"by"`
	// Regex must match the whole value; Java's (?<name>…) is accepted.
	Regex string `yaml:"regex" substitute:"no"`
	// Topic is the replacement, with ${name} or $1 groups. Without a match the
	// topic is the value itself.
	Topic string `yaml:"topic" substitute:"no"`
	// Underscores allows topics that begin with two underscores, except for Kafka's own,
	// as Debezium does. Package config sets it.
	Underscores bool `yaml:"-"`
	// Internal are topics that connectors keep their checkpoints in, and begin the
	// names of more such topics, behind a dot. No event goes there. Package config
	// sets it.
	Internal []string `yaml:"-"`
}

// Rules name the settings behind topic and key of an event, for a comparison with others.
func Rules(ev EventOptions, route RouteOptions) string {
	return fmt.Sprintf("event.key %q, event.compat %q, route.by %q, route.regex %q, route.topic %q", ev.Key, ev.Compat, route.By, route.Regex, route.Topic)
}

// Values of errors.on_bad_event: the treatment of an event that can never be
// published as it is.
const (
	BadEventStop       = "stop"
	BadEventDeadLetter = "dead_letter"
	BadEventSkip       = "skip"
	BadEventQuarantine = "quarantine"
)

// DefaultEvent is the meaning of an empty section event.
func DefaultEvent() EventOptions {
	return EventOptions{
		RecordTime:         RecordTimePublished,
		AdditionalMissing:  MissingError,
		KeyFormat:          KeyRaw,
		PayloadFormat:      FormatRaw,
		NullBehavior:       NullIgnore,
		EmptyArrayBehavior: EmptyArrayIgnore,
		NullKey:            NullKeyBadEvent,
		InvalidJSON:        InvalidJSONBadEvent,
		OnUpdate:           UpdateWarn,
		PositionHeaders:    true,
		TypeHeader:         "eventType",
		Compat:             CompatNone,
		Debezium:           DefaultHandling(),
		CloudEvents:        CloudEvents{Mode: CloudEventsNone},
	}
}

// DefaultRoute is the meaning of an empty section route.
func DefaultRoute() RouteOptions {
	return RouteOptions{Regex: "(?<routedByValue>.*)", Topic: "outbox.event.${routedByValue}"}
}
