package rig

import (
	"errors"
	"strings"
)

// List is a flag of values with commas between them.
type List []string

// String implements flag.Value.
func (l *List) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value.
func (l *List) Set(v string) error { *l = strings.Split(v, ","); return nil }

// Settings are key=value pairs, each a flag.
type Settings []string

// String implements flag.Value.
func (s *Settings) String() string { return strings.Join(*s, " ") }

// Set implements flag.Value.
func (s *Settings) Set(v string) error {
	if !strings.Contains(v, "=") {
		return errors.New("want key=value")
	}
	*s = append(*s, v)
	return nil
}

// Map has the value of each key.
func (s Settings) Map() map[string]string {
	m := map[string]string{}
	for _, pair := range s {
		key, value, _ := strings.Cut(pair, "=")
		m[key] = value
	}
	return m
}
