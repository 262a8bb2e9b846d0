package debezium

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// keyOrder has the sections of the configuration in their order.
var keyOrder = []string{"source", "event", "route", "sink", "encoding", "checkpoint", "errors", "log", "http"}

// YAML is the configuration, with the verdicts as comments: on a key above the key,
// the others below.
func (r *Result) YAML() ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode, HeadComment: r.heading()}
	keys := slices.SortedFunc(maps.Keys(r.settings), func(a, b string) int {
		return slices.Compare(rank(a), rank(b))
	})
	for _, key := range keys {
		path := strings.Split(key, ".")
		node := root
		for _, section := range path[:len(path)-1] {
			node = within(node, section)
		}
		name := &yaml.Node{Kind: yaml.ScalarNode, Value: path[len(path)-1], HeadComment: r.about(key)}
		node.Content = append(node.Content, name, value(r.settings[key]))
	}
	root.FootComment = r.remaining()
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := encoder.Encode(root)
	return out.Bytes(), err
}

// rank orders keys: sections as in the documentation, then source.url first, then names.
func rank(key string) []string {
	section, rest, _ := strings.Cut(key, ".")
	place := slices.Index(keyOrder, section)
	switch rest {
	case "url":
		rest = " 0"
	case "password":
		rest = " 1"
	case "compat":
		rest = " 0"
	case "kafka.brokers":
		rest = " 0"
	case "kafka.sasl.password":
		rest = "kafka.sasl.username 1"
	}
	return []string{fmt.Sprintf("%02d", place), rest}
}

// within is the mapping of a section, made if missing.
func within(node *yaml.Node, section string) *yaml.Node {
	for i := 0; i < len(node.Content); i += 2 {
		if node.Content[i].Value == section {
			return node.Content[i+1]
		}
	}
	m := &yaml.Node{Kind: yaml.MappingNode}
	node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: section}, m)
	return m
}

// value is the node of a setting: text, a list or a map. Ambiguous text is quoted.
func value(v any) *yaml.Node {
	switch v := v.(type) {
	case []string:
		node := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, item := range v {
			node.Content = append(node.Content, text(item))
		}
		return node
	case map[string]string:
		node := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			node.Content = append(node.Content, text(name), text(v[name]))
		}
		return node
	}
	s, _ := v.(string)
	node := text(s)
	switch {
	case s == "true" || s == "false":
		node.Tag, node.Style = "!!bool", 0 // as people write booleans
	case digits.MatchString(s):
		node.Tag, node.Style = "!!int", 0
	}
	return node
}

func text(s string) *yaml.Node {
	node := &yaml.Node{}
	node.SetString(s)
	return node
}

var digits = regexp.MustCompile(`^[1-9][0-9]{0,17}$`)

func (r *Result) heading() string {
	lines := []string{"Written by cdc-outbox import debezium from " + r.Form + "."}
	if r.Connector != "" && plainName.MatchString(r.Connector) {
		lines = []string{"Written by cdc-outbox import debezium from " + r.Form + ": " + r.Connector + "."}
	}
	if open := r.Open(); len(open) > 0 {
		lines = append(lines, "", "To decide before a start:")
		for _, v := range open {
			lines = append(lines, "- "+v.line())
		}
	}
	return comment(lines)
}

// about returns the verdicts on a key.
func (r *Result) about(key string) string {
	var lines []string
	for _, v := range r.Verdicts {
		if slices.Contains(strings.Split(v.Key, ", "), key) {
			lines = append(lines, v.line())
		}
	}
	return comment(lines)
}

// remaining returns the verdicts without a key in the configuration.
func (r *Result) remaining() string {
	var lines []string
	for _, kind := range []struct {
		kind  Kind
		title string
	}{{Differs, "Differs:"}, {None, "No counterpart:"}, {Unknown, "Unknown:"}, {Same, "The same without a key:"}} {
		title := kind.title
		for _, v := range r.Verdicts {
			if v.Kind != kind.kind || r.mentioned(v) {
				continue
			}
			if title != "" {
				lines = append(lines, title)
				title = ""
			}
			lines = append(lines, "- "+strings.Replace(v.line(), ": "+string(v.Kind)+", ", ": ", 1))
		}
	}
	return comment(lines)
}

func (r *Result) mentioned(v Verdict) bool {
	return slices.ContainsFunc(strings.Split(v.Key, ", "), func(key string) bool { _, ok := r.settings[key]; return ok })
}

// line is a verdict in a comment.
func (v Verdict) line() string {
	line := v.Option
	if v.Default {
		line += " (not set"
		if v.Value != "" {
			line += "; " + v.Value
		}
		line += ")"
	}
	switch {
	case v.Kind == Same && v.Note == "":
	case v.Kind == Same:
		line += ": " + v.Note
	default:
		line += ": " + string(v.Kind)
		if v.Note != "" {
			line += ", " + v.Note
		}
	}
	return line
}

// comment makes a comment of lines: no text of the input ends the comment.
func comment(lines []string) string {
	for i, line := range lines {
		line = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffd {
				return ' '
			}
			return r
		}, line)
		lines[i] = strings.TrimRight("# "+line, " ")
	}
	return strings.Join(lines, "\n")
}
