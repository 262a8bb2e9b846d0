package main

import (
	"context"
	"os"
)

// stopped is the cause of a context that a signal ended.
type stopped struct{ signal os.Signal }

func (s stopped) Error() string { return "stopped by signal: " + s.signal.String() }

// stopOn returns a context that the first signal ends, with stopped as its
// cause. The second one means that the operator will not wait for a drain: it
// calls exit with 1. The goroutine that waits lives as long as the process, or
// until signals is closed.
func stopOn(ctx context.Context, signals <-chan os.Signal, exit func(int)) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		if first, ok := <-signals; ok {
			cancel(stopped{first})
		}
		if _, ok := <-signals; ok {
			exit(1)
		}
	}()
	return ctx
}
