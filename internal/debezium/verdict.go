package debezium

import "regexp"

// Kind is the judgement on an option.
type Kind string

// The kinds.
const (
	Same    Kind = "same"    // the same effect here, by the key or by itself
	Differs Kind = "differs" // a counterpart with a difference, in the note
	None    Kind = "none"    // no counterpart, for the reason in the note
	Unknown Kind = "unknown" // no option of Debezium, Connect or a producer
)

// Verdict says how an option is taken over.
type Verdict struct {
	Option string `json:"option"`          // as the input has it
	Value  string `json:"value,omitempty"` // never a secret
	// Default: the input leaves the option out, and Value is Debezium's default.
	Default bool   `json:"default,omitempty"`
	Kind    Kind   `json:"verdict"`
	Key     string `json:"key,omitempty"` // ours; several with commas between
	Note    string `json:"note,omitempty"`
	// Open: records would be others, or a value is missing. A person decides.
	Open bool `json:"open,omitempty"`
}

// Secret is a value outside of the configuration, with a reference inside.
type Secret struct {
	Variable string `json:"variable"` // the environment variable referred to
	Option   string `json:"option"`   // of the input
	// Origin says where the value comes from; empty: from the input itself.
	Origin string `json:"origin,omitempty"`

	value string // the input's; empty where only Debezium's program knows the value
}

// hidden matches options with secrets.
var hidden = regexp.MustCompile(`(?i)(password|secret|token|credential|jaas\.config|user\.info|ssl\.keystore\.key|sslkeypass|initial\.statements|action\.query|apikey|api\.key)$`)

// login matches the login within a URL.
var login = regexp.MustCompile(`://[^/@\s]*@`)

// shown is a value for verdicts, where the option is known.
func shown(name, value string) string {
	if hidden.MatchString(name) {
		return "…"
	}
	const longest = 120
	value = login.ReplaceAllString(value, "://…@")
	if runes := []rune(value); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return value
}

var plainName = regexp.MustCompile(`^[\w./:\-+"'$ ]{1,100}$`)

// printable is a name of an option, unless unlike a name: a misplaced secret, perhaps.
func printable(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	return "(not a name)"
}
