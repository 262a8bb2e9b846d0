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

// Main runs a benchmark, until a signal at the longest, and exits. A process that
// StartBroker started is a broker instead.
func Main(name string, run func(ctx context.Context) error) {
	isBroker, err := serveBroker()
	if !isBroker {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx)
		stop()
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}
