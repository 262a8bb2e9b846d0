package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// help prints a line for every verb.
func help(w io.Writer) {
	var b strings.Builder
	b.WriteString("cdc-outbox publishes a PostgreSQL outbox table's rows to Kafka.\n\nUsage: cdc-outbox VERB [-c FILE] [flags]\n\n")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, v := range verbs() {
		_, _ = fmt.Fprintf(table, "  %s\t%s\n", v.name, v.summary)
	}
	_ = table.Flush() // a strings.Builder does not fail
	b.WriteString("\ncdc-outbox VERB --help shows a verb's flags and an example.\n" +
		"docs/configuration.md lists every key of the configuration.\n\n" +
		"Exit codes: 0 clean stop; 1 an error that may pass, start again; 2 bad usage or\n" +
		"configuration; 3 events may have been lost, an operator must decide.\n")
	_, _ = io.WriteString(w, b.String())
}

// help prints the verb's description, the flags and the example.
func (v *verb) help(w io.Writer, flags *flag.FlagSet) {
	var b strings.Builder
	fmt.Fprintf(&b, "cdc-outbox %s: %s.\n", v.name, v.summary)
	if v.detail != "" {
		b.WriteString("\n" + v.detail + "\n")
	}
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	heading := "\nFlags:\n"
	flags.VisitAll(func(f *flag.Flag) {
		_, _ = io.WriteString(table, heading)
		heading = ""
		value, usage := flag.UnquoteUsage(f)
		_, _ = fmt.Fprintf(table, "  %s %s\t%s\n", dashes(f.Name), value, usage)
	})
	_ = table.Flush()
	b.WriteString("\nExample:\n")
	for line := range strings.Lines(strings.TrimSpace(v.example) + "\n") {
		b.WriteString("  " + strings.TrimSpace(line) + "\n")
	}
	_, _ = io.WriteString(w, b.String())
}

// dashes writes a flag as users do: a dash before a single letter, otherwise
// two.
func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
