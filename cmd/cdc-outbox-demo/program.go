package main

import (
	"context"
	"flag"
	"io"
	"os"

	"github.com/cdc-outbox/cdc-outbox/internal/base/cli"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/demo"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// name is the word users type.
const name = "cdc-outbox-demo"

// Set by the release build: -ldflags "-X main.version=v1.2.3 -X
// main.commit=…".
var version, commit string

// program is the process, with its surroundings: those of the operating system
// in main, memory in tests.
type program struct {
	stdout, stderr io.Writer
	getenv         func(string) string
}

// run executes the command line and returns the exit code. run reports the
// error, if any.
func (p *program) run(ctx context.Context, args []string) int {
	line := cli.Program[*program]{
		Name:    name,
		Verbs:   []cli.Verb[*program]{demoVerb()},
		Version: version, Commit: commit,
		Stdout: p.stdout,
	}
	return line.Run(ctx, p, args, p.report)
}

func (p *program) report(ctx context.Context, err error) {
	// Where stderr is gone there is nobody to tell.
	_, _ = io.WriteString(p.stderr, cli.Message(ctx, name, err, invocation.Invocation{}.In))
}

// demoVerb is the whole program, without a word of its own.
func demoVerb() cli.Verb[*program] {
	return cli.Verb[*program]{
		Summary: "shows the whole connector on this machine, with nothing to configure",
		Detail: "It starts a throwaway PostgreSQL, a Kafka broker on a loopback port, the\n" +
			"connector, an order service and a consumer, and removes them all at the end.\n" +
			"CDC_OUTBOX_PG_BIN names the directory of the PostgreSQL programs to use.\n" +
			name + " --version prints the version.",
		Example: name + " --events 20",
		Prepare: func(flags *flag.FlagSet) cli.Action[*program] {
			events := flags.Uint("events", 0, "end after `N` events, with a summary; 0, the default, goes on until Ctrl-C")
			return func(ctx context.Context, p *program) error {
				return demo.Run(ctx, demo.Options{Events: int(*events), Out: p.stdout, Color: p.wantsColor(), Connect: p.connect})
			}
		},
	}
}

// connect runs the connector as cdc-outbox run does, but logs warnings and errors
// only: the demo shows the rest itself.
func (p *program) connect(ctx context.Context, cfg *config.Config) error {
	log, err := wiring.NewLogger(cfg.Log, p.stderr)
	if err != nil {
		return err
	}
	ver, rev := cli.Build(version, commit)
	return pipeline.Run(ctx, pipeline.Options{Config: cfg, Log: log, Stdout: io.Discard, Version: ver, Commit: rev})
}

// wantsColor is true on a terminal, unless NO_COLOR (https://no-color.org) or a
// dumb terminal forbids it.
func (p *program) wantsColor() bool {
	file, ok := p.stdout.(*os.File)
	if !ok || p.getenv("NO_COLOR") != "" || p.getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
