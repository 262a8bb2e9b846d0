package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
)

// errStoreSilent is the cause of the end of a save or load that took too long.
var errStoreSilent = errors.New("the checkpoint store did not answer")

// storeError is an error of the checkpoint store, for which PostgreSQL is not to
// be blamed.
type storeError struct{ err error }

// Error implements error.
func (e *storeError) Error() string { return "checkpoint store: " + e.err.Error() }

// Unwrap returns the store's own error.
func (e *storeError) Unwrap() error { return e.err }

// ofStore tells whether the checkpoint store is what failed.
func ofStore(err error) bool {
	_, ok := errors.AsType[*storeError](err)
	return ok
}

// bounded is a store whose calls all have a deadline. Its errors are storeErrors.
type bounded struct {
	checkpoint.Store
	limit time.Duration
}

// Load implements checkpoint.Store.
func (b bounded) Load(ctx context.Context) (cp checkpoint.Checkpoint, ok bool, err error) {
	err = b.within(ctx, func(ctx context.Context) error {
		cp, ok, err = b.Store.Load(ctx)
		return err
	})
	return cp, ok, err
}

// Save implements checkpoint.Store.
func (b bounded) Save(ctx context.Context, cp checkpoint.Checkpoint) error {
	return b.within(ctx, func(ctx context.Context) error { return b.Store.Save(ctx, cp) })
}

func (b bounded) within(ctx context.Context, ask func(context.Context) error) error {
	silent := fmt.Errorf("%w within %s", errStoreSilent, b.limit)
	ctx, cancel := context.WithTimeoutCause(ctx, b.limit, silent)
	defer cancel()
	err := ask(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errStoreSilent) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		err = &storeError{err}
	}
	return err
}
