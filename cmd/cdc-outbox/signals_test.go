package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
)

func TestFirstSignalStopsSecondExits(t *testing.T) {
	signals := make(chan os.Signal)
	exited := make(chan int)
	ctx := stopOn(t.Context(), signals, func(code int) { exited <- code })
	if ctx.Err() != nil {
		t.Fatal("stopped without a signal")
	}
	signals <- syscall.SIGTERM
	<-ctx.Done()
	cause, ok := errors.AsType[stopped](context.Cause(ctx))
	if !ok || cause.signal != syscall.SIGTERM {
		t.Errorf("cause %v, want SIGTERM", context.Cause(ctx))
	}
	signals <- syscall.SIGTERM
	if code := <-exited; code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}
