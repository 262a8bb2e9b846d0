package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// asksForHelp tells whether the word standing for a verb asks for help.
func asksForHelp(word string) bool {
	return slices.Contains([]string{"help", "--help", "-help", "-h"}, word)
}

// help prints a line for every verb.
func help(w io.Writer) error {
	var b strings.Builder
	b.WriteString(name + " looks after the stores in which consumers keep what they handled.\n\nUsage: " + name + " VERB [flags]\n\n")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, v := range verbs() {
		_, _ = fmt.Fprintf(table, "  %s\t%s\n", v.name, v.summary)
	}
	_ = table.Flush() // a strings.Builder does not fail
	b.WriteString("\n" + storeDetail + "\n\n" + name + " VERB --help shows a verb's flags and an example.\n\n" +
		"Exit codes: 0 done; 1 an error that may pass, try again; 2 bad usage, or something\n" +
		"that must be fixed first.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// help prints the verb's description, the flags and the example.
func (v *verb) help(w io.Writer, flags *flag.FlagSet) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s.\n", name, v.name, v.summary)
	if v.detail != "" {
		b.WriteString("\n" + v.detail + "\n")
	}
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	heading := "\nFlags:\n"
	flags.VisitAll(func(f *flag.Flag) {
		_, _ = io.WriteString(table, heading)
		heading = ""
		value, usage := flag.UnquoteUsage(f)
		_, _ = fmt.Fprintf(table, "  --%s %s\t%s\n", f.Name, value, usage)
	})
	_ = table.Flush()
	b.WriteString("\nExample:\n  " + v.example + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}
