package transform

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// The cache holds so many route values, each no longer than a topic name; a
// route column with more distinct values is routed without gain, not without
// bound.
const maxCachedTopics = 4096

// topics turns route values into topic names, as Kafka Connect's RegexRouter
// does: where the regex matches the whole value, the first match in it is
// replaced (Java's Matcher.matches, then replaceFirst; they differ for a
// reluctant regex such as (.*?)); otherwise the value is the topic.
type topics struct {
	regex       *javaRegex
	replacement replacement
	internal    []string // RouteOptions.Internal
	underscores bool     // RouteOptions.Underscores
	cache       map[string]topic
}

type topic struct {
	name string
	err  error // why the name is illegal
}

const regexRemedy = `write it with characters, . \d \w \s, classes such as [a-z_], groups (…) (?:…) (?<name>…), |, * + ? {2,3}, ^ $ and (?i)`

func newTopics(route RouteOptions) (*topics, error) {
	regex, err := compileRegex(route.Regex)
	if err != nil {
		return nil, failure.Configf(regexRemedy, "route.regex %#q: %w", route.Regex, err)
	}
	replacement, err := parseReplacement(route.Topic, regex.first)
	if err != nil {
		return nil, failure.Configf("write groups of route.regex as ${name} or $1, and a $ or \\ with a \\ before it",
			"route.topic %#q: %w", route.Topic, err)
	}
	if err := replacement.legal(route.Underscores); err != nil {
		return nil, failure.Configf("use letters, digits, dots, underscores and hyphens",
			"route.topic %#q: %w", route.Topic, err)
	}
	if prefix, fixed := replacement.begins(); isInternal(prefix, fixed, route.Internal) {
		return nil, failure.Configf("name another topic for events, or another checkpoint.topic",
			"route.topic %#q: checkpoints are kept there, and an event could pass for one", route.Topic)
	}
	return &topics{regex: regex, replacement: replacement, internal: route.Internal, underscores: route.Underscores, cache: make(map[string]topic)}, nil
}

// lookup returns the topic for a route value, with an error where Kafka or we
// do not allow the name.
func (t *topics) lookup(value []byte) (string, error) {
	if known, ok := t.cache[string(value)]; ok {
		return known.name, known.err
	}
	name := t.route(string(value))
	found := topic{name: name, err: t.legal(name)}
	if len(value) <= setting.LongestTopic {
		if len(t.cache) >= maxCachedTopics {
			clear(t.cache)
		}
		t.cache[string(value)] = found
	}
	return found.name, found.err
}

func (t *topics) route(value string) string {
	legible := t.regex.legible(value)
	if !utf8.ValidString(value) || !t.regex.whole.MatchString(legible) {
		return value
	}
	match := t.regex.first.FindStringSubmatchIndex(legible)
	if match == nil {
		return value
	}
	var b strings.Builder
	b.WriteString(value[:match[0]])
	t.replacement.expand(&b, value, match)
	b.WriteString(value[match[1]:])
	return b.String()
}

// kafkaTopics are the topics that brokers keep their own state in.
var kafkaTopics = []string{"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}

// legal checks a name by Kafka's rules, and refuses names beginning with two
// underscores, reserved by Kafka, and connectors' own topics: an event there
// could pass for a checkpoint.
func (t *topics) legal(name string) error {
	if strings.HasPrefix(name, "__") && (!t.underscores || slices.Contains(kafkaTopics, name)) {
		return fmt.Errorf("topic name %q is reserved: it begins with two underscores", name)
	}
	if isInternal(name, true, t.internal) {
		return fmt.Errorf("topic name %q is reserved: the connector keeps its own records there (checkpoint.topic, errors.quarantine_topic)", name)
	}
	return setting.CheckTopic(name)
}

// CheckTopic returns the reason against events in the topic, or nil.
func (o RouteOptions) CheckTopic(name string) error {
	return (&topics{internal: o.Internal, underscores: o.Underscores}).legal(name)
}

// isInternal reports whether a name or, unless whole, every name that begins
// like it is that of an internal topic.
func isInternal(name string, whole bool, internal []string) bool {
	return slices.ContainsFunc(internal, func(kept string) bool {
		return whole && name == kept || strings.HasPrefix(name, kept+".")
	})
}
