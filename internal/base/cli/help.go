package cli

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// help has a line for every verb.
func (c *Program[P]) help() string {
	var b strings.Builder
	b.WriteString(c.About + "\n\nUsage: " + c.Name + " " + c.Usage + "\n\n")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, v := range c.verbs() {
		_, _ = fmt.Fprintf(table, "  %s\t%s\n", v.Name, v.Summary)
	}
	_ = table.Flush() // a strings.Builder does not fail
	b.WriteString("\n" + c.Name + " VERB --help shows a verb's flags and an example.\n" + c.Notes)
	return b.String()
}

// verbHelp has the verb's description, the flags and the example.
func (c *Program[P]) verbHelp(v Verb[P], flags *flag.FlagSet) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s.\n", c.typed(v), v.Summary)
	if v.Detail != "" {
		b.WriteString("\n" + v.Detail + "\n")
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
	for line := range strings.Lines(strings.TrimSpace(v.Example) + "\n") {
		b.WriteString("  " + strings.TrimSpace(line) + "\n")
	}
	return b.String()
}
