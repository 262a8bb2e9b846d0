package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
)

// errStoreSilent is the cause of the end of an overlong save or load.
var errStoreSilent = errors.New("the checkpoint store did not answer")

// storeError is an error of the checkpoint store, as opposed to the PostgreSQL of the
// slot.
type storeError struct{ err error }

// Error implements error.
func (e *storeError) Error() string { return "checkpoint store: " + e.err.Error() }

// Unwrap returns the store's own error.
func (e *storeError) Unwrap() error { return e.err }

// ofStore reports whether the checkpoint store failed.
func ofStore(err error) bool {
	_, ok := errors.AsType[*storeError](err)
	return ok
}

// bounded is a store with a deadline for each call, and with storeErrors.
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

// limits are the durations of a pipeline.
type limits struct {
	// store bounds a save or a load. A silent store has then failed: counted and
	// shown, and no obstacle to a spare or to the first save of the next session.
	store time.Duration
	// spareLook is how often a spare looks whether it could take over,
	// spareSilence how long the checkpoint store may be silent until the spare
	// could not, and unfit how long an error fatal at a start may last in a spare
	// fit before.
	spareLook, spareSilence, unfit time.Duration
	// spareLogin is how often a spare asks the server and the store to let it in.
	spareLogin time.Duration
	// yield is how long an instance perhaps not fit leaves the slot to others.
	yield time.Duration
	// elsewhere is how long the checkpoint must stay behind the slot, unchanged,
	// until a spare suspects another store: longer than a network file system
	// shows an old file.
	elsewhere time.Duration
	// monitor is how often slot and publication are looked at, and quiet how often
	// a position is saved after a move of less than saveBytes and past none of our
	// events.
	monitor, quiet time.Duration
	candidates     candidateLooks
	// stalled is how long a stage with work may stand still, until readiness says
	// so: longer than quiet and a look of the monitor together.
	stalled time.Duration
	// silenceLimit is how long the server may be silent, even without work, until readiness
	// says so: to the stream, with a question every StatusInterval, and to the
	// monitor or, standing by, the look at the slot. With a second for the page, an
	// outage is visible within five.
	silenceLimit time.Duration
	// close bounds a Kafka transaction with a checkpoint under way, then the last
	// checkpoint, and then the last standby status: a stop waits no longer for a
	// silent store or server.
	close time.Duration
	// whole bounds how long a stop waits for the rest of a transaction. Without a
	// wait, its first part would come again after the next start.
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
	silenceLimit: 3500 * time.Millisecond,
	close:        3 * time.Second,
	whole:        time.Second,
}
