package debezium

import (
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// routerRule is an option of the outbox event router.
type routerRule struct {
	name string
	key  string
	kind Kind
	note string
	set  func(t *translation, o Option, r routerRule)
}

// routerRules are all options of the router, in the documentation's order.
var routerRules = []routerRule{
	{name: "table.field.event.id", key: "event.id", kind: Same, set: putText},
	{name: "table.field.event.key", key: "event.key", kind: Same, set: putText},
	{name: "table.field.event.type", key: "event.type", kind: Same, note: "no part of the record, there and here", set: putText},
	{name: "table.field.event.payload", key: "event.payload", kind: Same, set: putText},
	{name: "table.field.event.timestamp", key: "event.timestamp", kind: Same, set: putTimestamp},
	{name: "table.field.event.schema.version", key: "event.schema_version", kind: Same, note: "the version of an envelope's schema", set: putText},
	{name: "table.fields.additional.placement", key: "event.additional", kind: Same, set: putAdditional},
	{name: "table.field.additional.missing", key: "event.additional_missing", kind: Same, set: putLower},
	{name: "table.op.invalid.behavior", key: "event.on_update", kind: Same, set: putLower},
	{name: "table.expand.json.payload", key: "event.payload_format", kind: Same, note: "with the value's converter"},
	{name: "table.json.payload.null.behavior", key: "event.null_behavior", kind: Same, set: putLower},
	{name: "table.json.payload.empty.array.behavior", key: "event.empty_array_behavior", kind: Same, set: putLower},
	{name: "route.by.field", key: "route.by", kind: Same, set: putText},
	{name: "route.topic.regex", key: "route.regex", kind: Same, note: "the part of Java's syntax that Go reads alike", set: putRoute},
	{name: "route.topic.replacement", key: "route.topic", kind: Same, set: putRoute},
	{name: "route.tombstone.on.empty.payload", key: "event.tombstone_on_empty_payload", kind: Same, set: putBoolean},
	{name: "tracing.span.context.field", key: "event.tracing", kind: Differs, note: "the column's traceparent is carried; tracing.otlp_endpoint exports spans, with other names and ids", set: putText},
	{name: "tracing.operation.name", kind: None, note: "a span's name is send and the topic"},
	{name: "tracing.with.context.field.only", kind: None, note: "always so, unless tracing.sample_ratio begins traces"},
	{name: "predicate", key: "source.tables", kind: Same, set: putPredicate},
	{name: "negate", kind: Same, note: "with the predicate"},
}

func routerNames() []string {
	names := make([]string, len(routerRules))
	for i, r := range routerRules {
		names[i] = r.name
	}
	return names
}

// routerOptions judges the options of the router.
func (t *translation) routerOptions() {
	prefix := "transforms." + t.router + "."
	if o, ok := t.options[prefix+"type"]; ok {
		t.say(o, Same, "event.compat")
	}
	for _, r := range routerRules {
		o, given := t.options[prefix+r.name]
		switch {
		case !given:
		case r.set == nil:
			t.say(o, r.kind, r.key, r.note)
		default:
			r.set(t, o, r)
		}
	}
	const old, name = "debezium.op.invalid.behavior", "table.op.invalid.behavior"
	if o, ok := t.options[prefix+old]; ok {
		if _, both := t.options[prefix+name]; !both {
			putLower(t, o, routerRule{key: "event.on_update", kind: Same})
		}
		t.renamed(o, name)
	}
	t.judgeRoute(prefix)
}

func putText(t *translation, o Option, r routerRule) {
	value := t.resolve(o, "CDC_"+strings.ToUpper(strings.ReplaceAll(r.key, ".", "_")))
	t.put(r.key, strings.TrimSpace(value.text))
	t.say(o, r.kind, r.key, append([]string{r.note}, value.notes...)...)
}

func putLower(t *translation, o Option, r routerRule) {
	o.Value = strings.ToLower(o.Value)
	putText(t, o, r)
}

func putBoolean(t *translation, o Option, r routerRule) {
	t.put(r.key, map[bool]string{true: "true", false: "false"}[isTrue(o.Value)])
	t.say(o, r.kind, r.key, r.note)
}

// putTimestamp heeds Debezium Server: the producer sets the time there.
func putTimestamp(t *translation, o Option, r routerRule) {
	if t.server {
		t.say(o, Same, "", "Debezium Server does not give it to Kafka: the record has the time of writing; event.timestamp would")
		return
	}
	putText(t, o, r)
}

// putAdditional heeds Debezium Server: the producer chooses the partition there.
func putAdditional(t *translation, o Option, r routerRule) {
	value := t.resolve(o, "CDC_ADDITIONAL")
	var fields []string
	note := ""
	for _, field := range list(value.text) {
		parts := strings.Split(field, ":")
		if t.server && len(parts) > 1 && strings.EqualFold(strings.TrimSpace(parts[1]), "partition") {
			note = "not " + field + ": Debezium Server leaves the partition to the producer"
			continue
		}
		fields = append(fields, field)
	}
	t.put(r.key, fields)
	kind := r.kind
	if note != "" {
		kind = Differs
	}
	t.say(o, kind, r.key, append([]string{note}, value.notes...)...)
}

// putRoute keeps the groups ${…}; Debezium Server doubles the dollar.
func putRoute(t *translation, o Option, r routerRule) {
	value := o.Value
	if t.server {
		value = strings.ReplaceAll(value, "$${", "${")
	} else if m := connectReference.FindString(value); m != "" {
		t.open(o, None, r.key, "references have no place here: write the value of "+m)
		t.put(r.key, value)
		return
	}
	t.put(r.key, value)
	t.say(o, r.kind, r.key)
}

// judgeRoute compiles regex and replacement. An error names the obstacle.
func (t *translation) judgeRoute(prefix string) {
	options := transform.DefaultRoute()
	options.Underscores = true
	if v, ok := t.result.settings["route.regex"].(string); ok {
		options.Regex = v
	}
	if v, ok := t.result.settings["route.topic"].(string); ok {
		options.Topic = v
	}
	_, _, err := options.Topics()
	for _, err := range failure.Split(err) {
		for _, name := range []string{"route.topic.regex", "route.topic.replacement"} {
			o, given := t.options[prefix+name]
			key := map[string]string{"route.topic.regex": "route.regex", "route.topic.replacement": "route.topic"}[name]
			if given && strings.HasPrefix(err.Error(), key) {
				t.open(o, None, key, err.Error(), failure.RemedyOf(err))
			}
		}
	}
}

// putPredicate judges the router's predicate. The tables are chosen already.
func putPredicate(t *translation, o Option, _ routerRule) {
	class := t.options["predicates."+strings.TrimSpace(o.Value)+".type"].Value
	negated := isTrue(t.options["transforms."+t.router+".negate"].Value)
	switch {
	case strings.HasSuffix(class, topicMatches):
		t.say(o, Same, "source.tables", "the tables are chosen by it")
	case strings.HasSuffix(class, "RecordIsTombstone") && negated:
		t.say(o, Same, "", "there are no tombstones before the router")
	default:
		t.open(o, None, "", "events are not routed by "+printable(class)+": all rows of source.tables are published")
	}
}
