package setting

import (
	"errors"
	"fmt"
)

// LongestTopic is how long a topic's name may be, in characters.
const LongestTopic = 249

// CheckTopic says why no Kafka topic can have the name
// (org.apache.kafka.common.internals.Topic).
func CheckTopic(name string) error {
	switch {
	case name == "":
		return errors.New("the topic name is empty")
	case name == "." || name == "..":
		return fmt.Errorf("topic name %q is not allowed", name)
	case len(name) > LongestTopic:
		return fmt.Errorf("topic name %.40q… has %d characters, more than %d", name, len(name), LongestTopic)
	}
	for _, c := range name {
		if !TopicCharacter(c) {
			return fmt.Errorf("topic name %q contains %q; letters, digits, dots, underscores and hyphens are allowed", name, c)
		}
	}
	return nil
}

// TopicCharacter reports whether a topic's name may contain c.
func TopicCharacter(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// Topic reports a name that no Kafka topic can have.
func (r Report) Topic(key, name string) {
	if CheckTopic(name) != nil {
		r.Problem(key, "is not a legal topic name", "use 1 to 249 letters, digits, dots, hyphens or underscores")
	}
}
