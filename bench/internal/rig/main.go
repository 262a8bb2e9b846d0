// Package rig has what the benchmarks of the whole program share: PostgreSQL
// with an outbox and backlogs in the log, a broker, the connector, and readers
// of a slot to compare it with, each in a separate process, so that its
// processor time and memory are its own. Linux only: they are read from the
// kernel.
//
// Non-goals: judging.
package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// roles are what a benchmark's program is instead, by the first argument.
var roles = map[string]func(ctx context.Context, args []string) error{
	fakeRole: serveFake,
	bareRole: readBare,
}

// Main runs a benchmark, until a signal at the longest, and exits. A process
// the rig started to be something else is that instead.
func Main(name string, run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if role, ok := roles[argument(1)]; ok {
		err = role(ctx, os.Args[2:])
	} else {
		err = run(ctx)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func argument(n int) string {
	if len(os.Args) <= n {
		return ""
	}
	return os.Args[n]
}
