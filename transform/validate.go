package transform

import (
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Validate reports faults.
func (o *EventOptions) Validate(report setting.Report) {
	report.OneOf("event.record_time", o.RecordTime, RecordTimePublished, RecordTimeCommit)
	report.OneOf("event.additional_missing", o.AdditionalMissing, MissingError, MissingIgnore)
	report.OneOf("event.payload_format", o.PayloadFormat, FormatRaw, FormatJSON, FormatJSONExpanded)
	report.OneOf("event.null_behavior", o.NullBehavior, NullIgnore, NullOptionalBytes)
	report.OneOf("event.empty_array_behavior", o.EmptyArrayBehavior, EmptyArrayIgnore, EmptyArrayOptionalString)
	report.OneOf("event.null_key", o.NullKey, NullKeyBadEvent, NullKeyPublish)
	report.OneOf("event.invalid_json", o.InvalidJSON, InvalidJSONBadEvent, InvalidJSONPublish)
	report.OneOf("event.on_update", o.OnUpdate, UpdateWarn, UpdateError, UpdateFatal)
	report.OneOf("event.compat", o.Compat, CompatNone, CompatDebezium)
	o.Debezium.validate(report, o.Compat)
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
