package debezium

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// readJSON reads the bare map of options, or the map within {"name", "config"}, as
// Connect's REST interface takes and answers them.
func readJSON(name, text string) (*Connector, error) {
	c := &Connector{Form: "connector JSON"}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &whole); err != nil {
		return nil, failure.Configf("correct the syntax; a shell script around the JSON is not read", "%s is not JSON: %s", name, syntax(err))
	}
	if config, ok := whole["config"]; ok {
		if err := json.Unmarshal(whole["name"], &c.Name); err != nil && whole["name"] != nil {
			return nil, failure.Configf("write a text", "%s: the connector's name is no text", name)
		}
		text = string(config)
	}
	var err error
	c.Options, err = members(name, text)
	return c, err
}

// syntax is the reason of an error in JSON, without text of the input: a secret,
// perhaps.
func syntax(err error) string {
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return "the syntax is wrong"
	}
	return "it is no object"
}

// members are an object's, in their order. The last of a name wins, as in Connect.
func members(name, text string) ([]Option, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return nil, failure.Configf(`write {"name": …, "config": {…}}, or the inner object alone`, "%s has no object of options", name)
	}
	var options []Option
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, failure.Configf("correct the syntax", "%s is not JSON: %s", name, syntax(err))
		}
		member, _ := key.(string)
		var value any
		if err := decoder.Decode(&value); err != nil && !errors.Is(err, io.EOF) {
			return nil, failure.Configf("correct the syntax", "%s is not JSON: %s", name, syntax(err))
		}
		switch v := value.(type) {
		case nil:
		case string:
			options = set(options, member, v)
		case json.Number:
			options = set(options, member, v.String())
		case bool:
			options = set(options, member, map[bool]string{true: "true", false: "false"}[v])
		default:
			return nil, failure.Configf("write each option as text", "%s: option %s is an object or a list", name, printable(member))
		}
	}
	return options, nil
}

// set replaces the option of the name, or appends one.
func set(options []Option, name, value string) []Option {
	for i := range options {
		if options[i].Written == name {
			options[i].Value = value
			return options
		}
	}
	return append(options, Option{Name: name, Written: name, Value: value})
}
