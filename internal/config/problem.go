package config

import (
	"fmt"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Problem is a fault of the configuration.
type Problem struct {
	// Origin is where the value was given: file:line, an environment variable
	// or a flag; empty for a default.
	Origin string
	// Key is the dotted key; empty when the problem is not about a single key.
	Key string
	// Value is the value as written, before substitution, quoted; empty for
	// secrets and where the value says nothing.
	Value string
	// Text names the fault, without key and value.
	Text string
	// Remedy names the repair.
	Remedy string
}

// String returns the problem on a single line, without the remedy.
func (p Problem) String() string {
	var b strings.Builder
	if p.Origin != "" {
		b.WriteString(p.Origin + ": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key)
		if p.Value != "" {
			b.WriteString(" " + p.Value)
		}
		b.WriteString(": ")
	}
	return b.String() + p.Text
}

// Problems is the error of an unusable configuration: every problem, in the
// order file, environment, flags, combinations.
type Problems struct {
	List []Problem
}

// Error implements error, with a line for each problem and another for the
// remedy.
func (p *Problems) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the configuration has %d problem", len(p.List))
	if len(p.List) != 1 {
		b.WriteString("s")
	}
	for _, problem := range p.List {
		b.WriteString("\n  " + problem.String())
		if problem.Remedy != "" {
			b.WriteString("\n    remedy: " + problem.Remedy)
		}
	}
	return b.String()
}

// err returns nil for no problem, otherwise p as an error of class Config.
func (p *Problems) err() error {
	if len(p.List) == 0 {
		return nil
	}
	return &failure.Error{Class: failure.Config, Err: p}
}

// display quotes a value for a message. Possible credentials (anything with
// user information before an @) are left out, and so is the end of a long
// value.
func display(text string) string {
	const longest = 80
	if strings.Contains(text, "@") {
		return ""
	}
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return fmt.Sprintf("%q", text)
}
