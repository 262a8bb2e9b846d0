// Package rig is shared by the benchmarks of the whole program: PostgreSQL with an
// outbox and backlogs in the log, a broker, the connector, and readers of a slot for
// comparison, each in a separate process, so that processor time and memory can be
// told apart. Linux only: both are read from the kernel.
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

// roles are other programs within a benchmark's program, by the first argument.
var roles = map[string]func(ctx context.Context, args []string) error{
	fakeRole:  serveFake,
	bareRole:  readBare,
	relayRole: serveRelay,
}

// Main runs a benchmark, until a signal at the longest, and exits. A process
// started by the rig for a role plays the role.
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
