package transform

// EventOptions say which columns make the record; the Debezium Outbox Event
// Router's options under plain names. An empty column name is detected:
// Debezium's names first, then the snake-case ones.
type EventOptions struct {
	ID      string `yaml:"id"`
	Key     string `yaml:"key"`
	Type    string `yaml:"type"`
	Payload string `yaml:"payload"`
	// Timestamp is the column for the record timestamp; empty means that
	// RecordTime decides.
	Timestamp string `yaml:"timestamp"`
	// RecordTime is RecordTimePublished or RecordTimeCommit: the record timestamp
	// where no column says one.
	RecordTime string `yaml:"record_time"`
	// SchemaVersion is an int column for the header schemaVersion; empty means
	// no such header.
	SchemaVersion string `yaml:"schema_version"`
	// Tracing is a column with a W3C traceparent or Debezium's
	// tracingspancontext; empty means detect by those two names, HeadersNone that
	// there is none.
	Tracing string `yaml:"tracing"`
	// Headers is a json or jsonb column whose object's members become headers;
	// empty means detect by the name headers, HeadersNone that there is none.
	Headers string `yaml:"headers"`
	// Additional fields, each "column:header|envelope|partition[:alias]".
	Additional []string `yaml:"additional"`
	// AdditionalMissing is MissingError or MissingIgnore: what an additional
	// column the table lacks means.
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
)

// RouteOptions say which topic a row goes to.
type RouteOptions struct {
	// By is the column with the value routed; empty means detect.
	By string `yaml:"by"`
	// Regex must match the whole value; Java's (?<name>…) is accepted.
	Regex string `yaml:"regex" substitute:"no"`
	// Topic is the replacement, with ${name} or $1 groups. Without a match the
	// topic is the value itself.
	Topic string `yaml:"topic" substitute:"no"`
	// Internal are topics that connectors keep their checkpoints in, and begin the
	// names of more such topics, behind a dot. No event goes there. Package config
	// sets it.
	Internal []string `yaml:"-"`
}

// Values of errors.on_bad_event: what happens to an event that can never be
// published as is.
const (
	BadEventStop       = "stop"
	BadEventDeadLetter = "dead_letter"
	BadEventSkip       = "skip"
)

// DefaultEvent is what an empty section event means.
func DefaultEvent() EventOptions {
	return EventOptions{
		RecordTime:         RecordTimePublished,
		AdditionalMissing:  MissingError,
		PayloadFormat:      FormatRaw,
		NullBehavior:       NullIgnore,
		EmptyArrayBehavior: EmptyArrayIgnore,
		NullKey:            NullKeyBadEvent,
		InvalidJSON:        InvalidJSONBadEvent,
		OnUpdate:           UpdateWarn,
		PositionHeaders:    true,
		TypeHeader:         "eventType",
	}
}

// DefaultRoute is what an empty section route means.
func DefaultRoute() RouteOptions {
	return RouteOptions{Regex: "(?<routedByValue>.*)", Topic: "outbox.event.${routedByValue}"}
}
