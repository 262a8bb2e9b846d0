package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Stopped is the cause of a context ended by a signal.
type Stopped struct{ Signal os.Signal }

func (s Stopped) Error() string { return "stopped by signal: " + s.Signal.String() }

// doubled is how long after the first signal others count as the same one: GNU
// timeout and some supervisors signal the process and then its group.
const doubled = time.Second

// CatchSignals returns the signals that stop the process. SIGHUP, sent when a
// terminal closes, is among them, unless the process was started to outlive the
// terminal (nohup).
func CatchSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	return signals
}

// StopOn returns a context that the first signal ends, with Stopped as its
// cause. A second, later than doubled, means that the operator will not wait
// for a drain: StopOn calls exit with 1. Its goroutine lives as long as the
// process, or until signals is closed.
func StopOn(ctx context.Context, signals <-chan os.Signal, exit func(int)) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		first, ok := <-signals
		if !ok {
			return
		}
		cancel(Stopped{first})
		began := time.Now()
		for range signals {
			if time.Since(began) >= doubled {
				exit(1)
				return
			}
		}
	}()
	return ctx
}
