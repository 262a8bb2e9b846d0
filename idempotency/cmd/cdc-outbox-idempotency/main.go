// Command cdc-outbox-idempotency is the operator's tool for the stores of
// package idempotency: it shows what a consumer's store knows of a message, has
// it run again, or forgets it. Verbs, flags and exit codes are public: 0 done,
// 1 an error that may pass, 2 bad usage, or something an operator must fix.
//
// It is a separate program because it links every store's client.
package main

import (
	"context"
	"os"

	"github.com/cdc-outbox/cdc-outbox/internal/base/cli"
)

func main() {
	ctx := cli.StopOn(context.Background(), cli.CatchSignals(), os.Exit)
	p := &program{environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.run(ctx, os.Args[1:]))
}
