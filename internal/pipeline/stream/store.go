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

// bounded is a store whose calls all have a deadline. Its errors are
// storeErrors.
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
	if err != nil && errors.Is(context.Cause(ctx), errStoreSilent) && !errors.Is(err, errStoreSilent) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		err = &storeError{err}
	}
	return err
}

// limits are how long things may take, and how often they are looked at.
type limits struct {
	// store bounds a save or a load. A silent store has then failed, which is
	// counted and shown, and holds up neither the first save of the next
	// session nor a spare.
	store time.Duration
	// spareLook is how often a spare looks whether it could take over,
	// spareSilence how long its checkpoint store may give no answer until it
	// could not, and unfit how long what run would not start with may last in a
	// spare that could before.
	spareLook, spareSilence, unfit time.Duration
	// spareLogin is how often a spare asks the server and the store to let it in.
	spareLogin time.Duration
	// yield is how long an instance that may not be fit leaves the slot to others.
	yield time.Duration
	// elsewhere is how long the checkpoint must stay behind the slot, and as it
	// is, until a spare takes it for that of another store: longer than a
	// network file system shows an old file.
	elsewhere time.Duration
	// monitor is how often slot and publication are looked at, and quiet how often
	// a position is saved that moved by less than saveBytes and past none of our
	// events.
	monitor, quiet time.Duration
	candidates     candidateLooks
	// stalled is how long one of the stages may stand still, with work before it,
	// until readiness says so. It is longer than quiet and a look of the
	// monitor together.
	stalled time.Duration
	// mute is how long the server may answer nobody until readiness says so,
	// although there is no work: neither the stream, which asks it every
	// StatusInterval, nor the monitor or, standing by, the look at the slot. With
	// the second the page takes to show it, an outage is visible within five.
	mute time.Duration
	// close bounds the last checkpoint, and then the last standby status: a
	// stop waits no longer for a store or a server that does not answer.
	close time.Duration
	// whole bounds how long a stop waits for the rest of a transaction. Without
	// it, what was read of one would come again after the next start.
	whole time.Duration
}

// usual are those of every pipeline but in tests.
var usual = limits{
	store:        10 * time.Second,
	spareLook:    3 * time.Second,
	spareSilence: 8 * time.Second,
	spareLogin:   10 * time.Second,
	unfit:        30 * time.Second,
	yield:        3 * time.Second,
	elsewhere:    90 * time.Second,
	monitor:      2 * time.Second,
	candidates:   candidateLooks{ready: time.Minute, unready: 15 * time.Second},
	quiet:        5 * time.Second,
	stalled:      12 * time.Second,
	mute:         3500 * time.Millisecond,
	close:        3 * time.Second,
	whole:        time.Second,
}
