package main

import (
	"context"
	"errors"
	"io"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/cli"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
)

// program is the process as the verbs see it: its surroundings are those of the
// operating system in main, memory in tests.
type program struct {
	environ        []string
	stdout, stderr io.Writer
	// connect runs the connector until ctx ends or it fails; nil is
	// pipeline.Run.
	connect func(context.Context, pipeline.Options) error
	// command completes the commands in remedies, once flags are read.
	command invocation.Invocation
	// fatal takes the error ending the program, in place of stderr; nil until a
	// configuration says that the log is JSON.
	fatal *zap.Logger
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
// error, if any: nothing that it calls does.
func (p *program) run(ctx context.Context, args []string) int {
	return p.line().Run(ctx, p, args, p.report)
}

// line is the command line.
func (p *program) line() *cli.Program[*program] {
	return &cli.Program[*program]{
		Name:  "cdc-outbox",
		About: "cdc-outbox publishes a PostgreSQL outbox table's rows to Kafka.",
		Usage: "VERB [-c FILE] [flags]",
		Notes: "docs/configuration.md lists every key of the configuration.\n\n" +
			"Exit codes: 0 clean stop; 1 an error that may pass, start again; 2 bad usage or\n" +
			"configuration; 3 events may have been lost, an operator must decide.\n",
		Verbs: []verb{
			runVerb(),
			setupVerb(),
			adoptVerb(),
			teardownVerb(),
			checkVerb(),
			statusVerb(),
			waitVerb(),
			tailVerb(),
			verifyVerb(),
			repairVerb(),
			replayVerb(),
			snapshotVerb(),
			upgradePrepareVerb(),
			upgradeFinishVerb(),
			importVerb(),
			shadowVerb(),
			lettersListVerb(),
			lettersShowVerb(),
			lettersRedriveVerb(),
			quarantineListVerb(),
			quarantineShowVerb(),
			quarantineRetryVerb(),
			quarantineEditVerb(),
			quarantineSkipVerb(),
			quarantineReleaseVerb(),
			fleetStatusVerb(),
			fleetDrainVerb(),
			fleetUndrainVerb(),
			txnListVerb(),
			txnAbortVerb(),
			healthcheckVerb(),
		},
		Elsewhere: moved,
		Synonyms:  map[string]string{"config": "c", "config-file": "c", "file": "c", "dry-run": "print"},
		Hints: map[string]string{
			"dead-letters redrive dry-run": "leave it out: without --publish dead-letters redrive publishes nothing",
			"snapshot dry-run":             "leave it out: without --publish snapshot publishes nothing",
			"replay dry-run":               "leave it out: without --publish replay publishes nothing",
			"repair dry-run":               "leave it out: without --publish repair publishes nothing",
			"run dry-run":                  "cdc-outbox check looks at all that run needs, cdc-outbox tail prints what it would publish; neither changes anything",
			"teardown dry-run":             "leave it out: without --yes teardown changes nothing and says what it would do",
		},
		Version: version, Commit: commit,
		Stdout: p.stdout,
	}
}

// moved returns an error for verbs of other programs of ours, and nil for the
// rest.
func moved(name string) error {
	switch name {
	case "demo":
		return failure.Configf("in a clone of the repository: make demo; elsewhere: "+
			"go install github.com/cdc-outbox/cdc-outbox/cmd/cdc-outbox-demo@latest, then cdc-outbox-demo; "+
			"as an image: docker run --rm --interactive --tty --network host cdc-outbox-demo, "+
			"which docker build --tag cdc-outbox-demo --target cdc-outbox-demo . makes",
			"demo is no verb: the program cdc-outbox-demo shows the whole thing on one machine")
	case "idempotency":
		return failure.Configf("install it with 'go install github.com/cdc-outbox/cdc-outbox/idempotency/cmd/cdc-outbox-idempotency@latest'; "+
			"then for example: cdc-outbox-idempotency inspect --help", "idempotency is no verb: the program cdc-outbox-idempotency has inspect, release, purge and sweep")
	}
	return nil
}

// getenv returns the last value of a variable, or "".
func (p *program) getenv(name string) string { return cli.Getenv(p.environ, name) }

// show prints the report on stdout, for people or as JSON.
func (p *program) show(r report, asJSON bool) error {
	text, err := cli.Render(r, asJSON)
	complete := p.command.In
	if asJSON {
		complete = p.command.InJSON
	}
	_, writeErr := io.WriteString(p.stdout, complete(text))
	return errors.Join(err, writeErr)
}
