package debezium

import "strings"

// chain judges the transforms beside the router, and the predicates.
func (t *translation) chain() {
	o, ok := t.options["transforms"]
	if !ok {
		return
	}
	names := list(o.Value)
	if len(names) == 1 {
		t.say(o, Same, "event.compat", "the outbox event router")
	} else {
		t.say(o, Differs, "event.compat", "only "+t.router+", the outbox event router; the others have verdicts of their own")
	}
	for _, name := range names {
		if name != t.router {
			t.transform(name)
		}
	}
	t.predicates()
}

// transform judges a transform with all options.
func (t *translation) transform(name string) {
	prefix := "transforms." + name + "."
	class, ok := t.options[prefix+"type"]
	if !ok {
		class = Option{Name: prefix + "type", Written: t.written(prefix + "type")}
	}
	kind, note := t.transformed(name, class.Value)
	if kind == None {
		t.open(class, None, "", note)
	} else {
		t.say(class, kind, "", note)
	}
	for option, o := range t.options {
		if _, done := t.judged[option]; !done && strings.HasPrefix(option, prefix) {
			t.say(o, kind, "", "with "+class.Written)
		}
	}
}

// transformed judges the effect of a transform on the records.
func (t *translation) transformed(name, class string) (Kind, string) {
	switch {
	case class == routerClass || class == "EventRouter":
		return None, "a second outbox event router: import it with --router " + name + ", into a pipeline or process of its own"
	case strings.HasSuffix(class, "transforms.Filter") && t.dropsOthers(name):
		return Same, "it drops what is not of an outbox table, which is never read"
	case strings.HasSuffix(class, "ActivateTracingSpan"):
		return Differs, "event.tracing carries a column's traceparent; tracing.otlp_endpoint exports spans, with other names and ids"
	}
	return None, "only the outbox event router has a counterpart: " + printable(class) + " changes records, or leaves some out"
}

// dropsOthers tells whether Connect's Filter spares all events of the outbox.
func (t *translation) dropsOthers(name string) bool {
	prefix := "transforms." + name + "."
	predicate := strings.TrimSpace(t.options[prefix+"predicate"].Value)
	class := t.options["predicates."+predicate+".type"].Value
	negated := isTrue(t.options[prefix+"negate"].Value)
	switch {
	case strings.HasSuffix(class, "RecordIsTombstone"):
		return !negated
	case !strings.HasSuffix(class, topicMatches):
		return false
	}
	own := strings.TrimSpace(t.options["transforms."+t.router+".predicate"].Value)
	pattern := t.options["predicates."+predicate+".pattern"].Value
	if negated {
		return own == predicate
	}
	return strings.Contains(pattern, "heartbeat")
}

// predicates judges the predicates: each belongs to transforms with verdicts.
func (t *translation) predicates() {
	o, ok := t.options["predicates"]
	if ok {
		t.say(o, Same, "", "each with its transform")
	}
	for name, option := range t.options {
		if _, done := t.judged[name]; !done && strings.HasPrefix(name, "predicates.") {
			t.say(option, Same, "", "with its transform")
		}
	}
}
