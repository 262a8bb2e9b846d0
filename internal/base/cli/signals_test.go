package cli

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestFirstSignalStopsALaterOneExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal)
		defer close(signals)
		exited := -1
		ctx := StopOn(t.Context(), signals, func(code int) { exited = code })
		if ctx.Err() != nil {
			t.Fatal("stopped without a signal")
		}
		signals <- syscall.SIGTERM
		<-ctx.Done()
		cause, ok := errors.AsType[Stopped](context.Cause(ctx))
		if !ok || cause.Signal != syscall.SIGTERM {
			t.Errorf("cause %v, want SIGTERM", context.Cause(ctx))
		}
		signals <- syscall.SIGTERM // to the group
		<-time.After(doubled / 2)
		signals <- syscall.SIGINT
		synctest.Wait()
		if exited != -1 {
			t.Fatal("a doubled signal ended the process")
		}
		<-time.After(doubled / 2)
		signals <- syscall.SIGTERM
		synctest.Wait()
		if exited != 1 {
			t.Errorf("exit code %d, want 1", exited)
		}
	})
}
