package debezium

import (
	"fmt"
	"io"
	"strings"
)

// Open returns the verdicts for a person to decide on.
func (r *Result) Open() (open []Verdict) {
	for _, v := range r.Verdicts {
		if v.Open {
			open = append(open, v)
		}
	}
	return open
}

// Environ are the variables with the input's own secrets, for a check of the result.
// A later assignment of a variable prevails.
func (r *Result) Environ() (environ []string) {
	for _, s := range r.Secrets {
		if s.value != "" {
			environ = append(environ, s.Variable+"="+s.value)
		}
	}
	return environ
}

// WriteText writes a line for each option: open ones last, for a screen.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	count := map[Kind]int{}
	for _, open := range []bool{false, true} {
		for _, v := range r.Verdicts {
			if v.Open != open {
				continue
			}
			count[v.Kind]++
			b.WriteString(v.row())
		}
	}
	for _, s := range r.Secrets {
		origin := s.Origin
		if origin == "" {
			origin = "the value of " + s.Option
		}
		fmt.Fprintf(&b, "export   %s=…: %s\n", s.Variable, origin)
	}
	fmt.Fprintf(&b, "\n%d same, %d differ, %d without a counterpart, %d unknown; %d to decide\n",
		count[Same], count[Differs], count[None], count[Unknown], len(r.Open()))
	_, err := io.WriteString(w, b.String())
	return err
}

// row is a verdict on the screen.
func (v Verdict) row() string {
	label := string(v.Kind)
	if v.Open {
		label = "decide"
	}
	row := fmt.Sprintf("%-7s  %s", label, v.Option)
	if v.Value != "" {
		row += " = " + strings.Join(strings.Fields(v.Value), " ")
	}
	if v.Default {
		row += " (not set)"
	}
	if v.Key != "" {
		row += " -> " + v.Key
	}
	if v.Note != "" {
		row += ": " + v.Note
	}
	return row + "\n"
}
