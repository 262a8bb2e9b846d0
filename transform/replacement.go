package transform

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// replacement is a parsed route.topic.
type replacement []replacementPart

// replacementPart is a literal or, where group is not -1, a capturing group.
type replacementPart struct {
	literal string
	group   int
}

// parseReplacement reads a replacement by the rules of Java's
// Matcher.appendReplacement: ${name} and $1 are groups of re, a backslash makes
// the next character literal. Of the digits after $, the first always counts, a
// further one only as long as there is such a group.
func parseReplacement(text string, re *regexp.Regexp) (replacement, error) {
	var out replacement
	for rest := text; rest != ""; {
		offset := len(text) - len(rest)
		switch {
		case rest == `\`:
			return nil, errors.New("it ends in a single backslash")
		case rest[0] == '\\':
			out = out.literal(rest[1:2])
			rest = rest[2:]
		case rest[0] == '$':
			group, length, err := parseGroup(rest, re)
			if err != nil {
				return nil, fmt.Errorf("%w at offset %d", err, offset)
			}
			out = append(out, replacementPart{group: group})
			rest = rest[length:]
		default:
			n := strings.IndexAny(rest, `\$`)
			if n < 0 {
				n = len(rest)
			}
			out = out.literal(rest[:n])
			rest = rest[n:]
		}
	}
	return out, nil
}

// literal appends text, joined to a literal before.
func (r replacement) literal(text string) replacement {
	if n := len(r); n > 0 && r[n-1].group < 0 {
		r[n-1].literal += text
		return r
	}
	return append(r, replacementPart{literal: text, group: -1})
}

// parseGroup reads the group reference at the start of s.
func parseGroup(s string, re *regexp.Regexp) (group, length int, err error) {
	if strings.HasPrefix(s, "${") {
		name, _, closed := strings.Cut(s[2:], "}")
		if !closed {
			return 0, 0, errors.New("${ without }")
		}
		group = re.SubexpIndex(name)
		if group < 0 {
			return 0, 0, fmt.Errorf("route.regex has no group named %q (it has %s)", name, groupNames(re))
		}
		return group, len("${}") + len(name), nil
	}
	if len(s) < 2 || !isDigit(s[1]) {
		return 0, 0, errors.New("a $ that begins no group reference")
	}
	group, length = int(s[1]-'0'), 2
	if group > re.NumSubexp() {
		return 0, 0, fmt.Errorf("route.regex has no group %d (it has %s)", group, groupNames(re))
	}
	for length < len(s) && isDigit(s[length]) && group*10+int(s[length]-'0') <= re.NumSubexp() {
		group = group*10 + int(s[length]-'0')
		length++
	}
	return group, length, nil
}

func groupNames(re *regexp.Regexp) string {
	var names []string
	for i, name := range re.SubexpNames() {
		switch {
		case i == 0:
		case name == "":
			names = append(names, fmt.Sprintf("$%d", i))
		default:
			names = append(names, "${"+name+"}")
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// legal finds parts that would make every topic name illegal.
func (r replacement) legal(underscores bool) error {
	for _, part := range r {
		for _, c := range part.literal {
			if !setting.TopicCharacter(c) {
				return fmt.Errorf("no topic name may contain %q", c)
			}
		}
	}
	if !underscores && len(r) > 0 && strings.HasPrefix(r[0].literal, "__") {
		return errors.New("topic names that begin with two underscores are reserved")
	}
	return nil
}

// begins is the beginning of every replacement; whole: nothing follows.
func (r replacement) begins() (prefix string, whole bool) {
	if len(r) == 0 || r[0].group >= 0 {
		return "", false
	}
	return r[0].literal, len(r) == 1
}

// expand appends the replacement for a match of value; a group that took no
// part in the match is empty.
func (r replacement) expand(b *strings.Builder, value string, match []int) {
	for _, part := range r {
		if part.group < 0 {
			b.WriteString(part.literal)
		} else if start := match[2*part.group]; start >= 0 {
			b.WriteString(value[start:match[2*part.group+1]])
		}
	}
}

// Topics matches the possible topics of values that match route.regex. only is the
// single topic of all values, if route.topic has no group.
func (o RouteOptions) Topics() (like *regexp.Regexp, only string, err error) {
	t, err := newTopics(o)
	if err != nil {
		return nil, "", err
	}
	if prefix, whole := t.replacement.begins(); whole {
		only = prefix
	}
	var pattern strings.Builder
	for _, part := range t.replacement {
		if part.group < 0 {
			pattern.WriteString(regexp.QuoteMeta(part.literal))
		} else {
			pattern.WriteString(".*") // a group may be empty
		}
	}
	like, err = regexp.Compile("^" + pattern.String() + "$")
	return like, only, err
}
