package transform

import (
	"slices"

	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Validate reports faults.
func (o *EventOptions) Validate(report setting.Report) {
	report.OneOf("event.record_time", o.RecordTime, RecordTimePublished, RecordTimeCommit)
	report.OneOf("event.additional_missing", o.AdditionalMissing, MissingError, MissingIgnore)
	report.OneOf("event.key_format", o.KeyFormat, KeyRaw, KeyJSON)
	report.OneOf("event.payload_format", o.PayloadFormat, FormatRaw, FormatJSON, FormatJSONExpanded)
	report.OneOf("event.null_behavior", o.NullBehavior, NullIgnore, NullOptionalBytes)
	report.OneOf("event.empty_array_behavior", o.EmptyArrayBehavior, EmptyArrayIgnore, EmptyArrayOptionalString)
	report.OneOf("event.null_key", o.NullKey, NullKeyBadEvent, NullKeyPublish)
	report.OneOf("event.invalid_json", o.InvalidJSON, InvalidJSONBadEvent, InvalidJSONPublish)
	report.OneOf("event.on_update", o.OnUpdate, UpdateWarn, UpdateError, UpdateFatal)
	report.OneOf("event.compat", o.Compat, CompatNone, CompatDebezium)
	o.Debezium.validate(report, o.Compat)
	o.validateSchemas(report)
	o.CloudEvents.validate(report)
	if o.CloudEvents.On() && o.Compat == CompatDebezium {
		report.Problem("event.cloudevents.mode", "makes other records than event.compat: debezium, whose router writes no CloudEvents", "remove one of them")
	}
}

// validateSchemas refuses schemas around values that are no JSON, or without the names
// they need.
func (o *EventOptions) validateSchemas(report setting.Report) {
	h := &o.Debezium
	if o.Compat != CompatDebezium {
		return
	}
	if h.KeySchemas && o.KeyFormat != KeyJSON {
		report.Problem("event.debezium.key_converter_schemas_enable", "has no effect on a key that is no JSON", "set event.key_format to json, or remove the key")
	}
	if !h.ValueSchemas {
		return
	}
	fields, err := parseFields(*o)
	envelope := err == nil && slices.ContainsFunc(fields, func(f field) bool { return f.placement == placeEnvelope })
	switch {
	case envelope && h.TopicPrefix == "":
		report.Problem("event.debezium.topic_prefix", "is empty, and names the schema of the envelope (event.debezium.value_converter_schemas_enable)", "set it to Debezium's topic.prefix")
	case !envelope && o.PayloadFormat == FormatRaw:
		report.Problem("event.debezium.value_converter_schemas_enable", "has no effect on a value that is no JSON", "set event.payload_format to json or json_expanded, or remove the key")
	}
}

// Validate reports faults.
func (o *RouteOptions) Validate(report setting.Report) {
	if o.Regex == "" {
		report.Problem("route.regex", "is empty", "remove the key for the default, which matches every value")
	}
	if o.Topic == "" {
		report.Problem("route.topic", "is empty", "remove the key for the default, outbox.event.${routedByValue}")
	}
}
