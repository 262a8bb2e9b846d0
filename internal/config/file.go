package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// readFile merges the YAML file.
func (l *loader) readFile(path string) {
	text, err := l.inputs.readFile(path)
	if err != nil {
		l.unread = true
		l.add(Problem{Origin: path, Text: "cannot be read: " + setting.Reason(err), Remedy: "name a readable file with -c or CDC_OUTBOX_CONFIG"})
		return
	}
	l.readYAML(path, text)
}

// readYAML merges the YAML text. The node tree is walked rather than decoded
// into the struct: the tree has the line of each value, duplicate keys and the
// text before YAML's guesses about its type (no: stays no, 0123 stays 0123).
func (l *loader) readYAML(path string, text []byte) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return
	case err != nil:
		l.unread = true
		remedy := "correct the syntax near the line named; quote values with special characters"
		if tabbed.Match(text) {
			remedy = "indent with spaces: YAML takes no tabs there"
		}
		l.add(Problem{Origin: path, Text: "is not YAML: " + syntaxProblem(err), Remedy: remedy})
		return
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		l.add(Problem{Origin: path, Text: "has more than one YAML document", Remedy: "keep what is above the second ---"})
	}
	if root := resolve(document.Content[0]); root.Kind != yaml.MappingNode && !isNull(root) {
		l.unread = true
	}
	l.root = document.Content[0]
	l.section(path, "", l.root)
}

// tabbed is a line indented with a tab.
var tabbed = regexp.MustCompile(`(?m)^ *\t+ *[^\s#]`)

// syntaxProblem is the YAML library's message without what it quotes from the
// file: that may be a secret, as for an unquoted password that begins with *,
// an unknown anchor to YAML.
func syntaxProblem(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.Contains(text, "anchor") {
		return "an unquoted value begins with *, which refers to an anchor that does not exist"
	}
	return text
}

// section merges the keys of a mapping. A null sets nothing.
func (l *loader) section(path, prefix string, node *yaml.Node) {
	node = resolve(node)
	if isNull(node) {
		return
	}
	if node.Kind != yaml.MappingNode {
		l.note(prefix, given{origin: at(path, node)})
		l.report(prefix, fmt.Sprintf("wants keys (%s), got %s", strings.Join(l.fields.children(prefix), ", "), shape(node)),
			"put each key on a line of its own, indented, as key: value")
		return
	}
	seen := map[string]int{}
	for i := 0; i < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		key := join(prefix, name.Value)
		if line, ok := seen[key]; ok {
			l.add(Problem{Origin: at(path, name), Key: l.name(printableKey(key)), Text: fmt.Sprintf("is set twice, first on line %d", line), Remedy: "keep one"})
			continue
		}
		seen[key] = name.Line
		l.entry(path, key, name, value)
	}
}

func (l *loader) entry(path, key string, name, value *yaml.Node) {
	origin := at(path, name)
	if key == pipelinesKey && l.pipeline == "" {
		l.readPipelines(path, origin, value)
		return
	}
	if key == templateKey && l.pipeline == "" {
		if !isNull(resolve(value)) {
			l.note(key, given{origin: origin})
			if l.template = resolve(value); circular(l.template) {
				l.report(key, "has an alias to a node around it", "write the keys out")
				l.template = &yaml.Node{Kind: yaml.MappingNode}
			}
		}
		return
	}
	if l.fields.sections[key] {
		if !isNull(resolve(value)) {
			l.note(key, given{origin: origin})
		}
		l.section(path, key, value)
		return
	}
	f, ok := l.fields.byKey[key]
	if !ok {
		l.unknown(origin, printableKey(key), l.suggestKey(key))
		return
	}
	l.leaf(origin, f, resolve(value))
}

// leaf stores a value after substitution.
func (l *loader) leaf(origin string, f *field, node *yaml.Node) {
	if isNull(node) && f.value.Type() != stdoutType {
		return
	}
	l.note(f.key, given{origin: origin, shown: shown(f, node)})
	v, err := plain(node)
	if err != nil {
		l.reportError(f.key, err)
		return
	}
	l.noteItems(f, v)
	if !f.verbatim {
		if v, err = v.substitute(scope{l.environ, l.inputs}); err != nil {
			l.note(f.key, given{origin: origin})
			l.reportError(f.key, err)
			return
		}
		if v.written.Changes() {
			g := l.given[f.key]
			g.written = v.written
			l.given[f.key] = g
		}
	}
	if err := f.set(v); err != nil {
		l.reportError(f.key, err)
	}
}

// shown is the value for messages, as written; only scalars of keys holding no
// secret are shown.
func shown(f *field, node *yaml.Node) string {
	if f.secret() || node.Kind != yaml.ScalarNode {
		return ""
	}
	return display(node.Value)
}

// suggestKey names the key probably meant, first in the same section, then with
// the same last name anywhere.
func (l *loader) suggestKey(key string) string {
	parent, name := cutLast(key)
	if first, _, _ := strings.Cut(key, "."); l.pipeline != "" && slices.Contains(processSections, first) {
		return "set it at the top level, for all pipelines"
	}
	siblings := l.fields.children(parent)
	if parent == "" && l.pipeline == "" {
		siblings = append(siblings, pipelinesKey, templateKey)
	}
	if sibling := nearest.To(name, siblings); sibling != "" {
		return "did you mean " + l.name(join(parent, sibling)) + "?"
	}
	for _, known := range l.fields.all() {
		if _, last := cutLast(known); last == name {
			return "did you mean " + l.name(known) + "?"
		}
	}
	if full := nearest.To(key, l.fields.all()); full != "" {
		return "did you mean " + l.name(full) + "?"
	}
	switch {
	case parent == "" && l.pipeline != "":
		return "a pipeline has " + strings.Join(siblings, ", ")
	case parent == "":
		return "the top level has " + strings.Join(siblings, ", ")
	}
	return parent + " has " + strings.Join(siblings, ", ")
}

var plainKey = regexp.MustCompile(`^[\w.-]{1,100}$`)

// printableKey is key, unless unlike a key: after a typing error it may be a
// value, and a secret.
func printableKey(key string) string {
	if plainKey.MatchString(key) {
		return key
	}
	parent, _ := cutLast(key)
	if !plainKey.MatchString(parent) {
		return "(not a name)"
	}
	return join(parent, "(not a name)")
}

func at(path string, node *yaml.Node) string { return fmt.Sprintf("%s:%d", path, node.Line) }

func resolve(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node
}

// circular reports whether the node is within itself, by an alias. around are the nodes on the
// way.
func circular(node *yaml.Node, around ...*yaml.Node) bool {
	if node = resolve(node); slices.Contains(around, node) {
		return true
	}
	within := append(slices.Clip(around), node)
	return slices.ContainsFunc(node.Content, func(child *yaml.Node) bool { return circular(child, within...) })
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Tag == "!!null" }

func shape(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "keys"
	case yaml.SequenceNode:
		return "a list"
	default:
		return "a single value"
	}
}
