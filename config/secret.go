package config

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

// GoString implements fmt.GoStringer, for %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText implements encoding.TextMarshaler, for JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
