package debezium

import (
	"regexp"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// literalTable matches an expression for a single table. A dot without a backslash
// means any character there, and is written for a dot.
var literalTable = regexp.MustCompile(`^\^?([\p{L}\p{N}_$ -]+)\\?\.([\p{L}\p{N}_$ -]+)\$?$`)

// topicMatches is the predicate on the topic, before the router: prefix.schema.table.
const topicMatches = "TopicNameMatches"

// tables makes source.tables.
func (t *translation) tables() {
	const key = "source.tables"
	prefix, hasPrefix := t.get("topic.prefix", "")
	if old, ok := t.options["database.server.name"]; ok {
		if !hasPrefix {
			prefix.Value = old.Value
			t.say(old, Differs, "event.debezium.topic_prefix", "the name of topic.prefix before Debezium 2.0")
		} else {
			t.say(old, Same, "", "replaced by topic.prefix")
		}
	}
	t.contextHeaders(prefix, hasPrefix)

	include, given := t.get("table.include.list", "")
	if old, ok := t.options["table.whitelist"]; ok && !given {
		include, given = old, true
		defer t.renamed(old, "table.include.list")
	}
	if !given {
		t.put(key, []string{})
		t.open(include, None, key, "every table of the database goes through the router there: name the outbox tables")
		return
	}
	r := t.resolve(include, "CDC_TABLES")
	if r.refs {
		t.put(key, []string{r.text})
		t.say(include, Same, key, r.notes...)
		return
	}
	var names, patterns, elsewhere []string
	for _, expression := range list(r.plain) {
		m := literalTable.FindStringSubmatch(expression)
		if m == nil {
			patterns = append(patterns, expression)
			continue
		}
		table := pg.Table{Schema: m[1], Name: m[2]}
		if !t.routed(prefix.Value, table) {
			elsewhere = append(elsewhere, table.String())
			continue
		}
		names = append(names, table.String())
	}
	notes := []string{}
	if len(elsewhere) > 0 {
		notes = append(notes, "only outbox tables: not "+strings.Join(elsewhere, ", ")+", which the router's predicate leaves out; stay with Debezium for their change events")
	}
	if strings.ToLower(r.plain) != r.plain {
		notes = append(notes, "names in the case as written; the list ignores the case there")
	}
	t.put(key, append([]string{}, names...))
	switch {
	case len(patterns) > 0:
		t.put(key, []string{})
		t.open(include, None, key, append(notes, "patterns are not supported: name the tables that "+strings.Join(patterns, ", ")+" means")...)
	case len(names) == 0:
		t.open(include, None, key, append(notes, "name the outbox tables")...)
	case len(notes) > 0:
		t.say(include, Differs, key, notes...)
	default:
		t.say(include, Same, key)
	}
}

// routed tells whether the router's predicate lets events of the table through.
func (t *translation) routed(prefix string, table pg.Table) bool {
	name := strings.TrimSpace(t.options["transforms."+t.router+".predicate"].Value)
	class := t.options["predicates."+name+".type"].Value
	if name == "" || !strings.HasSuffix(class, topicMatches) {
		return true
	}
	pattern, err := regexp.Compile(`^(?:` + t.options["predicates."+name+".pattern"].Value + `)$`)
	if err != nil {
		return true
	}
	delimiter, _ := t.get("topic.delimiter", ".")
	matches := pattern.MatchString(strings.Join([]string{prefix, table.Schema, table.Name}, delimiter.Value))
	return matches != isTrue(t.options["transforms."+t.router+".negate"].Value)
}

// contextHeaders makes event.debezium.topic_prefix, for headers of Debezium from 3.2.1
// on, and for the names of schemas.
func (t *translation) contextHeaders(prefix Option, given bool) {
	const key, headers = "event.debezium.topic_prefix", "event.debezium.extended_headers_enabled"
	enabled, told := t.get("extended.headers.enabled", "true")
	if prefix.Value != "" {
		r := t.resolve(prefix, "CDC_TOPIC_PREFIX")
		t.put(key, r.text)
		if given {
			t.say(prefix, Same, key, r.notes...)
		}
	}
	switch old := t.version != "" && (before(t.version, 3, 2) || strings.HasPrefix(t.version, "3.2.0.")); {
	case !isTrue(enabled.Value):
		t.put(headers, "false")
		t.say(enabled, Same, headers)
	case old:
		t.put(headers, "false")
		t.say(enabled, Same, headers, "version "+t.version+" writes no context headers")
	case told || prefix.Value != "":
		t.put(headers, "true")
		t.say(enabled, Differs, headers, "without runId, which is random; versions before 3.2.1 write no context headers: then set it to false")
	}
}

// before tells whether a version is below major.minor.
func before(version string, major, minor int) bool {
	m := regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})`).FindStringSubmatch(version)
	if m == nil {
		return false
	}
	a, b := number(m[1]), number(m[2])
	return a < major || a == major && b < minor
}

func number(digits string) (n int) {
	for _, d := range digits {
		n = 10*n + int(d-'0')
	}
	return n
}

// renamed judges an option under an old name.
func (t *translation) renamed(o Option, name string) {
	v := t.judged[o.Name]
	v.Note = join([]string{"the old name of " + name + ", which Debezium ignores from 2.0 on", v.Note})
	if v.Kind == Same {
		v.Kind = Differs
	}
	t.judged[o.Name] = v
}
