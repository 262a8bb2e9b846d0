package debezium

import (
	"regexp"
	"strings"
	"unicode/utf8"

	javaproperties "github.com/magiconair/properties"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// readProperties reads the properties of a standalone worker's connector, or of Debezium
// Server.
func readProperties(name, text string) (*Connector, error) {
	options, err := properties(name, text)
	if err != nil {
		return nil, err
	}
	for _, o := range options {
		if serverName(o.Written) != o.Written {
			return server(options), nil
		}
	}
	c := &Connector{Form: "properties of a connector"}
	for _, o := range options {
		if o.Name == "name" {
			c.Name = o.Value
		}
		c.Options = append(c.Options, o)
	}
	return c, nil
}

// properties reads java.util.Properties. Both kinds of ${…} stay as they are.
func properties(name, text string) ([]Option, error) {
	if !utf8.ValidString(text) {
		return nil, failure.Configf("save the file as UTF-8", "%s is not text in UTF-8", name)
	}
	loader := javaproperties.Loader{Encoding: javaproperties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes([]byte(text))
	if err != nil {
		return nil, failure.Configf("write name=value on each line; \\ begins an escape", "%s is neither JSON nor YAML of Strimzi, nor Java properties", name)
	}
	var options []Option
	for _, key := range p.Keys() {
		value, _ := p.Get(key)
		options = append(options, Option{Name: key, Written: key, Value: value})
	}
	return options, nil
}

// Debezium Server's sections, with Connect's names for the same options.
var sections = []struct{ prefix, connect string }{
	{"debezium.source.", ""},
	{"debezium.transforms.", "transforms."},
	{"debezium.predicates.", "predicates."},
	{"debezium.format.key.", "key.converter."},
	{"debezium.format.value.", "value.converter."},
	{"debezium.format.header.", "header.converter."},
	{"debezium.sink.kafka.producer.", producerPrefix},
}

// environmentName matches variables with the place of properties.
var environmentName = regexp.MustCompile(`^(DEBEZIUM|QUARKUS)_[A-Z0-9_]+$`)

// serverName is Connect's name for an option of Debezium Server. Names without one, as
// debezium.sink.type or quarkus.http.port, are only told to be the server's.
func serverName(written string) string {
	name := written
	if environmentName.MatchString(name) {
		name = strings.ToLower(strings.ReplaceAll(name, "_", "."))
	}
	switch name {
	case "debezium.transforms", "debezium.predicates":
		return strings.TrimPrefix(name, "debezium.")
	}
	for _, s := range sections {
		if rest, ok := strings.CutPrefix(name, s.prefix); ok {
			return s.connect + rest
		}
	}
	switch {
	case strings.HasPrefix(name, "debezium."):
		return "server." + strings.TrimPrefix(name, "debezium.")
	case strings.HasPrefix(name, "quarkus."):
		return "server." + name
	}
	return written
}

func server(options []Option) *Connector {
	c := &Connector{Form: "properties of Debezium Server", Server: true}
	for _, o := range options {
		o.Name = serverName(o.Written)
		c.Options = append(c.Options, o)
	}
	return c
}
