package debezium

import (
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
)

// Choices are a person's additions to the input.
type Choices struct {
	// Router is the transform's name, where several are outbox event routers.
	Router string
	// Brokers are bootstrap brokers instead of the input's.
	Brokers []string
}

// Result is a translated configuration.
type Result struct {
	Form      string    `json:"form"`
	Connector string    `json:"connector,omitempty"`
	Verdicts  []Verdict `json:"options"`
	Secrets   []Secret  `json:"secrets,omitempty"`

	settings map[string]any // by our key: string, []string or map[string]string
}

// Translate makes our configuration of a connector's. The error is about an input other
// than a PostgreSQL connector with the outbox event router.
func Translate(c *Connector, choices Choices) (*Result, error) {
	t := &translation{
		choices: choices, server: c.Server, version: c.Version,
		options: index(c.Options), worker: index(c.Worker), judged: map[string]Verdict{},
		result: &Result{Form: c.Form, Connector: c.Name, settings: map[string]any{}},
	}
	if err := t.identify(); err != nil {
		return nil, err
	}
	t.put("event.compat", "debezium")
	t.database()
	t.slot()
	t.tables()
	t.routerOptions()
	t.converters()
	t.chain()
	t.topics()
	t.kafka()
	t.byTable()
	t.collect(c)
	return t.result, nil
}

// translation is the state of Translate.
type translation struct {
	choices         Choices
	server          bool
	version         string
	options, worker map[string]Option // by Connect's name
	router          string            // the router's name in the chain
	judged          map[string]Verdict
	order           []string // of defaults told
	result          *Result
}

func index(options []Option) map[string]Option {
	byName := make(map[string]Option, len(options))
	for _, o := range options {
		byName[o.Name] = o
	}
	return byName
}

// identify refuses inputs other than a PostgreSQL connector with the router.
func (t *translation) identify() error {
	if sink, ok := t.options["server.sink.type"]; t.server && sink.Value != "kafka" {
		if !ok {
			return failure.Configf("add debezium.sink.type=kafka, and its debezium.sink.kafka.producer.…", "the input names no sink (debezium.sink.type)")
		}
		return failure.Configf("stay with Debezium Server for this sink, or publish to Kafka first: debezium.sink.type=kafka",
			"the connector publishes to %s, and cdc-outbox to Kafka only", printable(sink.Value))
	}
	const postgres = "io.debezium.connector.postgresql.PostgresConnector"
	class := strings.TrimSpace(t.options["connector.class"].Value)
	switch {
	case class == "":
		return failure.Configf("name the file with connector.class="+postgres, "the input has no connector.class: it is no connector's configuration")
	case strings.HasPrefix(class, "PostgresCdcSource"):
		return failure.Configf("write its options under Debezium's names, with connector.class="+postgres,
			"the connector is %s of Confluent Cloud, which has options of its own", class)
	case class != postgres && class != "PostgresConnector" && class != "Postgres":
		return failure.Configf("import a connector of class "+postgres, "the connector is %s, and cdc-outbox reads PostgreSQL only", printable(class))
	}
	return t.findRouter()
}

const routerClass = "io.debezium.transforms.outbox.EventRouter"

// findRouter finds the outbox event router among the transforms.
func (t *translation) findRouter() error {
	var routers, others []string
	for _, name := range list(t.options["transforms"].Value) {
		switch class := t.options["transforms."+name+".type"].Value; class {
		case routerClass, "EventRouter":
			routers = append(routers, name)
		default:
			others = append(others, printable(class))
		}
	}
	if t.choices.Router != "" && !slices.Contains(routers, t.choices.Router) {
		return failure.Configf("it is one of "+strings.Join(routers, ", "), "--router %q is no outbox event router of the connector", t.choices.Router)
	}
	if len(routers) > 0 {
		t.router = routers[0]
		if t.choices.Router != "" {
			t.router = t.choices.Router
		}
		return nil
	}
	const remedy = "stay with Debezium for change events: only outbox tables are published here, by transforms=outbox and transforms.outbox.type=" + routerClass
	if len(others) == 0 {
		return failure.Configf(remedy, "the connector has no transforms, so no outbox event router: it publishes change events")
	}
	return failure.Configf(remedy, "the connector has no outbox event router, but %s", strings.Join(others, ", "))
}

// list splits at commas.
func list(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// put sets a key of ours.
func (t *translation) put(key string, value any) { t.result.settings[key] = value }

// get returns an option, or Debezium's default, and whether the input has the option.
func (t *translation) get(name, byDefault string) (o Option, given bool) {
	if o, ok := t.options[name]; ok {
		return o, true
	}
	return Option{Name: name, Written: t.written(name), Value: byDefault}, false
}

// written is the name of a left-out option in the input's form.
func (t *translation) written(name string) string {
	if !t.server {
		return name
	}
	for i := len(sections) - 1; i > 0; i-- {
		if rest, ok := strings.CutPrefix(name, sections[i].connect); ok {
			return sections[i].prefix + rest
		}
	}
	switch name {
	case "transforms", "predicates":
		return "debezium." + name
	case "key.converter", "value.converter", "header.converter":
		return "debezium.format." + strings.TrimSuffix(name, ".converter")
	}
	return sections[0].prefix + name
}

// say judges an option. An option left out of the input is told as a default.
func (t *translation) say(o Option, kind Kind, key string, notes ...string) {
	v := Verdict{Option: o.Written, Value: shown(o.Name, o.Value), Kind: kind, Key: key, Note: join(notes)}
	if _, given := t.options[o.Name]; !given && !strings.HasPrefix(o.Name, workerMark) {
		if _, told := t.judged[o.Name]; !told {
			t.order = append(t.order, o.Name)
		}
		v.Default = true
	}
	t.judged[o.Name] = v
}

// open judges an option for a person to decide on.
func (t *translation) open(o Option, kind Kind, key string, notes ...string) {
	t.say(o, kind, key, notes...)
	v := t.judged[o.Name]
	v.Open = true
	t.judged[o.Name] = v
}

// join makes a note of several.
func join(notes []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(notes), func(n string) bool { return n == "" }), "; ")
}

// byTable judges the rest of the options by the table of rules.
func (t *translation) byTable() {
	for _, r := range rules {
		for _, name := range r.names {
			o, given := t.options[name]
			if _, done := t.judged[name]; done || !given {
				continue
			}
			if r.set == nil {
				t.say(o, r.kind, r.key, r.note)
				continue
			}
			r.set(t, o, r)
		}
	}
}

// collect puts the verdicts into the order of the input, defaults last.
func (t *translation) collect(c *Connector) {
	names, told := known(), map[string]bool{}
	for _, o := range c.Options {
		if told[o.Name] {
			continue
		}
		told[o.Name] = true
		v, ok := t.judged[o.Name]
		if !ok {
			v = t.rest(o, names)
		}
		t.result.Verdicts = append(t.result.Verdicts, v)
	}
	for _, o := range c.Worker {
		if v, ok := t.judged[workerMark+o.Name]; ok && !told[workerMark+o.Name] {
			told[workerMark+o.Name] = true
			t.result.Verdicts = append(t.result.Verdicts, v)
		}
	}
	for _, name := range t.order {
		t.result.Verdicts = append(t.result.Verdicts, t.judged[name])
	}
}

// rest judges an option by the prefix, or as unknown.
func (t *translation) rest(o Option, names []string) Verdict {
	for _, p := range prefixes {
		if p.matches(o.Name) {
			return Verdict{Option: o.Written, Value: shown(o.Name, o.Value), Kind: p.kind, Key: p.key, Note: p.note, Open: p.open}
		}
	}
	v := Verdict{Option: printable(o.Written), Kind: Unknown, Note: "no option of Debezium 3.7, which ignores it"}
	name := strings.Trim(o.Name, `"' `)
	if own, ok := strings.CutPrefix(name, "transforms."+t.router+"."); ok {
		if meant := nearest.To(own, routerNames()); meant != "" {
			v.Note += "; did you mean transforms." + t.router + "." + meant + "?"
		}
	} else if meant := nearest.To(name, names); meant != "" {
		v.Note += "; did you mean " + meant + "?"
	}
	return v
}
