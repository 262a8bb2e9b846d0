package config

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// value is a layer's value of a key, before typing. Exactly one member is set,
// by kind.
type value struct {
	kind   yaml.Kind // ScalarNode, SequenceNode or MappingNode
	scalar string
	list   []string
	pairs  map[string]string
	// written is the scalar before the reading of files.
	written setting.Written
}

// plain turns a node into a value; lists and mappings must hold scalars.
func plain(node *yaml.Node) (value, error) {
	v := value{kind: node.Kind}
	switch node.Kind {
	case yaml.ScalarNode:
		v.scalar = node.Value
		if isNull(node) {
			v.scalar = ""
		}
	case yaml.SequenceNode:
		for _, item := range node.Content {
			if item = resolve(item); item.Kind != yaml.ScalarNode {
				return v, failure.Configf("write a flat list: [a, b]", "has a list item that is not a single value")
			}
			v.list = append(v.list, item.Value)
		}
	case yaml.MappingNode:
		v.pairs = map[string]string{}
		for i := 0; i < len(node.Content); i += 2 {
			name, item := resolve(node.Content[i]), resolve(node.Content[i+1])
			if name.Kind != yaml.ScalarNode || item.Kind != yaml.ScalarNode {
				return v, failure.Configf("write name: value pairs", "has an entry that is not a single value")
			}
			if _, twice := v.pairs[name.Value]; twice {
				return v, failure.Configf("keep one", "has the entry %s twice", printableKey(name.Value))
			}
			v.pairs[name.Value] = item.Value
		}
	}
	return v, nil
}

// substitute replaces ${…} in all scalars; names of entries stay.
func (v value) substitute(in scope) (value, error) {
	written, err := in.parse(v.scalar)
	if err != nil {
		return v, err
	}
	v.written = written
	if v.scalar, err = written.Read(); err != nil {
		return v, err
	}
	for i, item := range v.list {
		if v.list[i], err = in.substitute(item); err != nil {
			return v, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.pairs)) {
		if v.pairs[name], err = in.substitute(v.pairs[name]); err != nil {
			return v, err
		}
	}
	return v, nil
}

// textValue reads a value coming as a single string, from the environment or a
// flag: a list as a,b and a mapping as k=v,k=v. Commas inside double quotes do
// not separate, and text starting with [ or { is YAML.
func textValue(f *field, text string) (value, error) {
	kind := f.kind()
	if kind == yaml.ScalarNode {
		return value{kind: kind, scalar: text}, nil
	}
	if strings.HasPrefix(text, "[") || strings.HasPrefix(text, "{") {
		var document yaml.Node
		if err := yaml.Unmarshal([]byte(text), &document); err != nil {
			return value{}, failure.Configf("quote the items, or write a,b", "is not YAML: %s", syntaxProblem(err))
		}
		return plain(document.Content[0])
	}
	items := splitList(text)
	if kind == yaml.SequenceNode {
		return value{kind: kind, list: items}, nil
	}
	pairs := make(map[string]string, len(items))
	for _, item := range items {
		name, entry, ok := strings.Cut(item, "=")
		if !ok {
			return value{}, failure.Configf(`a value with a comma needs YAML: {name: "a,b"}`, "wants name=value,name=value")
		}
		pairs[name] = entry
	}
	return value{kind: kind, pairs: pairs}, nil
}

// splitList splits at commas outside double quotes and trims the items. The
// empty string is the empty list.
func splitList(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	quoted := false
	items := strings.FieldsFunc(text, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ',' && !quoted
	})
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}
