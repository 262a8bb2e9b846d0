// Command cdc-outbox publishes a PostgreSQL outbox table's rows to Kafka. The
// verbs, flags and exit codes are the public contract: 0 for a clean stop, 1
// for an error that may pass, 2 for bad usage or configuration, 3 when events
// may have been lost.
package main

import (
	"context"
	"os"

	"github.com/cdc-outbox/cdc-outbox/internal/base/cli"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
)

func main() {
	signals := cli.CatchSignals() // first: until then a signal ends the process by itself
	abortOnPanic()
	ctx := cli.StopOn(context.Background(), signals, os.Exit)
	p := &program{environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr}
	p.command.Place = invocation.PlaceOf(p.getenv, os.Getpid(), os.Getppid())
	p.command.Connector = p.command.Place.Connector(p.getenv)
	os.Exit(p.run(ctx, os.Args[1:]))
}
