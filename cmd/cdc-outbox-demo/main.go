// Command cdc-outbox-demo shows the connector on a single machine, with nothing
// to configure. The exit codes are those of cdc-outbox: 0 for a demo whose
// events all arrived, 1 for an error that may pass, 2 for bad usage or a
// machine that lacks something.
//
// It is a separate program because it links a Kafka broker and an installer of
// PostgreSQL, which no connector needs.
package main

import (
	"context"
	"os"

	"github.com/cdc-outbox/cdc-outbox/internal/base/cli"
)

func main() {
	ctx := cli.StopOn(context.Background(), cli.CatchSignals(), os.Exit)
	p := &program{stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	os.Exit(p.run(ctx, os.Args[1:]))
}
