// Command cdc-outbox-idempotency is the operator's tool for the stores of
// package idempotency: for a look at a message's record, another run, or to
// forget the record. Verbs, flags and exit codes are public: 0 done, 1 a
// passing error, 2 bad usage, or something an operator must fix.
//
// A separate program because of every store's client.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	p := &program{environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.run(ctx, os.Args[1:]))
}
