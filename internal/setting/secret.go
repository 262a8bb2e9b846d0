package setting

import (
	"fmt"
	"io"
)

// Secret is a string that must not be shown: every way of printing it gives a
// placeholder. Only Reveal returns the value.
type Secret string

const redacted = "[redacted]"

// Reveal returns the value itself.
func (s Secret) Reveal() string { return string(s) }

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format implements fmt.Formatter: the placeholder for every verb, also for
// verbs for which fmt would not ask a Stringer.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText implements encoding.TextMarshaler, for JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
