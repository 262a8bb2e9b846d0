package transform

import "github.com/cdc-outbox/cdc-outbox/internal/base/failure"

// Reason names why an event can never be published; the label of
// cdc_outbox_events_dead_lettered_total and a header of the dead letter.
type Reason string

// The reasons. The sink's stand here too, so the list is whole.
const (
	ReasonIllegalTopic       Reason = "illegal_topic"
	ReasonMissingTopic       Reason = "missing_topic"
	ReasonNullRoute          Reason = "null_route"
	ReasonNullKey            Reason = "null_key"
	ReasonInvalidJSON        Reason = "invalid_json"
	ReasonInvalidUTF8        Reason = "invalid_utf8"
	ReasonInvalidTimestamp   Reason = "invalid_timestamp"
	ReasonPartitionRange     Reason = "partition_out_of_range"
	ReasonInvalidHeaders     Reason = "invalid_headers"
	ReasonHeadersTooLarge    Reason = "headers_too_large"
	ReasonRecordTooLarge     Reason = "record_too_large"
	ReasonRejectedByBroker   Reason = "rejected_by_broker"
	ReasonUnreadableContents Reason = "unreadable"
	ReasonNotTransactional   Reason = "not_transactional"
	ReasonMissingColumn      Reason = "missing_column"
	ReasonSchemaMismatch     Reason = "schema_mismatch" // key or value do not fit their schema
	ReasonUnknownSchema      Reason = "unknown_schema"  // the registry does not have it
	ReasonInvalidCloudEvent  Reason = "invalid_cloudevent"
	ReasonClaimGone          Reason = "claim_gone"  // a value that is to be published again is not in the claim store
	ReasonPassedOver         Reason = "passed_over" // the transaction, by an operator
)

// Reasons are all of them.
func Reasons() []Reason {
	return []Reason{
		ReasonIllegalTopic, ReasonMissingTopic, ReasonNullRoute, ReasonNullKey, ReasonInvalidJSON, ReasonInvalidUTF8,
		ReasonInvalidTimestamp, ReasonPartitionRange, ReasonInvalidHeaders, ReasonHeadersTooLarge, ReasonRecordTooLarge,
		ReasonRejectedByBroker, ReasonUnreadableContents, ReasonNotTransactional, ReasonMissingColumn,
		ReasonSchemaMismatch, ReasonUnknownSchema, ReasonInvalidCloudEvent, ReasonClaimGone, ReasonPassedOver,
	}
}

// BadEvent is the error of a row that cannot become a record, or of a record
// the broker will never take. errors.on_bad_event decides what happens.
type BadEvent struct {
	Reason Reason
	Err    error
}

// Error implements error.
func (e *BadEvent) Error() string { return string(e.Reason) + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *BadEvent) Unwrap() error { return e.Err }

// Remedy is how such an event is published all the same; "": no configuration
// can, as the row in the log cannot be corrected.
func (e *BadEvent) Remedy() string {
	if remedy := failure.RemedyOf(e.Err); remedy != "" {
		return remedy
	}
	switch e.Reason {
	case ReasonNullKey:
		return "set event.null_key to publish, if the order of events without a key does not matter"
	case ReasonInvalidJSON:
		return "set event.invalid_json to publish, which makes a JSON string of it"
	case ReasonSchemaMismatch:
		return "let the schema in the registry take it"
	case ReasonUnknownSchema:
		return "register its schema"
	case ReasonInvalidCloudEvent:
		return "name another column for the attribute (event.id, event.type, event.cloudevents.attributes), or set event.cloudevents.mode to none"
	case ReasonIllegalTopic:
		return "correct route.regex or route.topic, so that it makes a legal name of it"
	}
	return ""
}
