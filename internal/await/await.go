// Package await waits for answers.
package await

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Answer calls ask in a goroutine and returns the answer, or the cause of ctx's
// end without it: for calls that do not look at their context all the time, as
// franz-go's client does not while it connects. ask then goes on by itself:
// there must be something ending it, such as the client's Close.
func Answer[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		value, err := ask()
		answered <- answer{value, err}
	}()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		var nothing T
		return nothing, context.Cause(ctx)
	}
}

// pause is between two attempts of Ready.
const pause = 20 * time.Millisecond

// ErrExited says that the awaited server has ended by itself.
var ErrExited = errors.New("it exited while starting")

// Ready probes a starting server until an answer. It fails when ctx ends
// before, when exited, which may be nil, is closed, or when the probe finds
// ErrExited.
func Ready(ctx context.Context, exited <-chan struct{}, probe func(context.Context) error) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := probe(ctx)
		if err == nil || errors.Is(err, ErrExited) {
			return err
		}
		select {
		case <-tick.C:
		case <-exited:
			return ErrExited
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		}
	}
}
