package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
)

// storeTimeout bounds a save or a load. After it the store has failed, which is
// counted and shown. So a silent store holds up neither the first save of the
// next session nor a spare.
const storeTimeout = 10 * time.Second

// errStoreSilent is the cause of the end of a save or load that took too long.
var errStoreSilent = errors.New("the checkpoint store did not answer within " + storeTimeout.String())

// storeError is an error of the checkpoint store, as opposed to one of the
// PostgreSQL that is read.
type storeError struct{ err error }

// Error implements error.
func (e *storeError) Error() string { return "checkpoint store: " + e.err.Error() }

// Unwrap returns the store's own error.
func (e *storeError) Unwrap() error { return e.err }

// ofStore reports whether it was the checkpoint store that failed.
func ofStore(err error) bool {
	_, ok := errors.AsType[*storeError](err)
	return ok
}

// bounded is a store whose calls all have a deadline. Its errors are storeErrors.
type bounded struct{ checkpoint.Store }

// Load implements checkpoint.Store.
func (b bounded) Load(ctx context.Context) (cp checkpoint.Checkpoint, ok bool, err error) {
	err = within(ctx, func(ctx context.Context) error {
		cp, ok, err = b.Store.Load(ctx)
		return err
	})
	return cp, ok, err
}

// Save implements checkpoint.Store.
func (b bounded) Save(ctx context.Context, cp checkpoint.Checkpoint) error {
	return within(ctx, func(ctx context.Context) error { return b.Store.Save(ctx, cp) })
}

func within(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, errStoreSilent)
	defer cancel()
	err := ask(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errStoreSilent) {
		err = fmt.Errorf("%w: %w", errStoreSilent, err)
	}
	if err != nil {
		err = &storeError{err}
	}
	return err
}
