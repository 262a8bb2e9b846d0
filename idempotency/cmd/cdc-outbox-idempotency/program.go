package main

import (
	"context"
	"io"

	"github.com/cdc-outbox/cdc-outbox/internal/base/cli"
)

// name is what users type.
const name = "cdc-outbox-idempotency"

// program is the process as the verbs see it: from the operating system in
// main, in memory in tests.
type program struct {
	environ        []string
	stdout, stderr io.Writer
}

type (
	verb   = cli.Verb[*program]
	action = cli.Action[*program]
	report = cli.Report
)

// Set by the release build: -ldflags "-X main.version=v1.2.3 -X
// main.commit=…".
var version, commit string

// run executes the command line and returns the exit code. It reports the
// error, if any.
func (p *program) run(ctx context.Context, args []string) int {
	return p.line().Run(ctx, p, args, p.report)
}

// line is the command line.
func (p *program) line() *cli.Program[*program] {
	return &cli.Program[*program]{
		Name:  name,
		About: name + " looks after the stores in which consumers keep what they handled.",
		Usage: "VERB [flags]",
		Notes: "\n" + storeDetail + "\n\n" +
			"Exit codes: 0 done; 1 an error that may pass, try again; 2 bad usage, or something\n" +
			"that must be fixed first.\n",
		Verbs:   []verb{inspectVerb(), releaseVerb(), purgeVerb(), sweepVerb()},
		Version: version, Commit: commit,
		Stdout: p.stdout,
	}
}

func (p *program) report(ctx context.Context, err error) {
	asIs := func(text string) string { return text }
	// Where stderr is gone there is nobody to tell.
	_, _ = io.WriteString(p.stderr, cli.Message(ctx, name, err, asIs))
}

// getenv returns the last value of a variable, or "".
func (p *program) getenv(variable string) string { return cli.Getenv(p.environ, variable) }

// show prints the report on stdout, for people or as JSON.
func (p *program) show(r report, asJSON bool) error {
	text, err := cli.Render(r, asJSON)
	if err != nil {
		return err
	}
	_, err = io.WriteString(p.stdout, text)
	return err
}
