package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/cli"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/demo"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// name is the word users type.
const name = "cdc-outbox-demo"

const help = name + ` shows the whole connector on this machine, with nothing to configure.

It starts a throwaway PostgreSQL, a Kafka broker on a loopback port, the
connector, an order service and a consumer, and removes them all at the end.
CDC_OUTBOX_PG_BIN names the directory of the PostgreSQL programs to use.

Flags:
  --events N  end after N events, with a summary; 0, the default, goes on until Ctrl-C
  --version   print the version

Example:
  ` + name + ` --events 20
`

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
	err := p.execute(ctx, args)
	if err == nil {
		return 0
	}
	// Where stderr is gone there is nobody to tell.
	_, _ = io.WriteString(p.stderr, cli.Message(ctx, name, err, invocation.Invocation{}))
	return failure.ClassOf(err).ExitCode()
}

func (p *program) execute(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors and help are ours to print
	events := flags.Uint("events", 0, "")
	printVersion := flags.Bool("version", false, "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, err = io.WriteString(p.stdout, help)
		return err
	case err != nil:
		return failure.Configf("run "+name+" --help", "bad flag: %w", err)
	case flags.NArg() > 0:
		return failure.Configf("run "+name+" --help", "%s takes no arguments, only flags; got %d", name, flags.NArg())
	case *printVersion:
		ver, rev := cli.Build(version, commit)
		_, err = fmt.Fprintf(p.stdout, "%s %s\ncommit %s\n", name, ver, rev)
		return err
	}
	return demo.Run(ctx, demo.Options{
		Events:  int(*events),
		Out:     p.stdout,
		Color:   p.wantsColor(),
		Connect: p.connect,
	})
}

// connect runs the connector as cdc-outbox run does, but logs warnings and errors
// only: the demo shows the rest itself.
func (p *program) connect(ctx context.Context, cfg *config.Config) error {
	log, err := wiring.NewLogger(cfg.Log, p.stderr)
	if err != nil {
		return err
	}
	ver, rev := cli.Build(version, commit)
	return pipeline.Run(ctx, pipeline.Options{Config: cfg, Log: log, Metrics: metrics.New(ver, rev), Version: ver, Stdout: io.Discard})
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
