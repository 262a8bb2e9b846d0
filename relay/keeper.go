package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

const (
	// saveBytes of log make a position worth saving before the interval is
	// over: it keeps the slot of an idle outbox close behind busy tables.
	saveBytes = 256 << 10
	// quietInterval is how often a position is saved that moved by less than
	// saveBytes and past none of our events.
	quietInterval = 10 * time.Second
)

// saveTimeout bounds an attempt at a save. A store that does not answer has then
// failed, which is counted and shown, and does not hold up the first save of the
// next session.
const saveTimeout = 10 * time.Second

// errStoreSilent is the cause of the end of a save or load that took too long.
var errStoreSilent = errors.New("the checkpoint store did not answer within " + saveTimeout.String())

// saveWaits are those between attempts at a save.
var saveWaits = backoff.Range{First: 100 * time.Millisecond, Longest: 5 * time.Second}

// keeper makes the acked position durable and then has it confirmed, in this
// order: the slot's confirmed position never passes the checkpoint, so a slot
// that did was moved by somebody else.
//
// begin comes before the tracker hears of any position, as only then is it
// known what a checkpoint has to say besides.
type keeper struct {
	store    checkpoint.Store
	tracker  *checkpoint.Locked
	interval time.Duration
	metrics  Metrics
	log      *zap.Logger
	wake     chan struct{} // capacity 1: the tracker's position may have moved
	saving   chan struct{} // capacity 1: full during a save, which lasts saveTimeout at the longest
	failed   bool          // run returned an error; read after run

	acked  atomic.Bool                // an event was acked since the last save
	saved  atomic.Uint64              // LSN of the last save
	stream atomic.Pointer[wal.Stream] // to confirm on; nil between connections

	mu      sync.Mutex            // never held during a save
	current checkpoint.Checkpoint // as last saved, in the present epoch
}

func newKeeper(store checkpoint.Store, tracker *checkpoint.Locked, interval time.Duration, m Metrics, log *zap.Logger) *keeper {
	return &keeper{
		store:    store,
		tracker:  tracker,
		interval: interval,
		metrics:  m,
		log:      log,
		wake:     make(chan struct{}, 1),
		saving:   make(chan struct{}, 1),
	}
}

// begin sets what the next checkpoints say besides the position, and saves the
// first of them.
func (k *keeper) begin(ctx context.Context, cp checkpoint.Checkpoint) error {
	return k.exclusive(ctx, func() error { return k.save(ctx, cp) })
}

// advance saves the tracker's position.
func (k *keeper) advance(ctx context.Context) error {
	return k.exclusive(ctx, func() error { return k.save(ctx, k.last()) })
}

// exclusive calls fn while no other save is in progress.
func (k *keeper) exclusive(ctx context.Context, fn func() error) error {
	select {
	case k.saving <- struct{}{}:
		defer func() { <-k.saving }()
		return fn()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finish saves the last position, once run has ended.
func (k *keeper) finish(ctx context.Context) {
	if k.failed || k.tracker.Position() <= wal.LSN(k.saved.Load()) {
		return
	}
	if err := k.advance(ctx); err != nil {
		k.log.Warn("the last checkpoint was not saved; some events may be sent again", zap.Error(err))
	}
}

// last returns the checkpoint saved last.
func (k *keeper) last() checkpoint.Checkpoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// event notes that events were acked and wakes run.
func (k *keeper) event() {
	k.acked.Store(true)
	signal(k.wake)
}

// idle wakes run for a position that passed no event.
func (k *keeper) idle() { signal(k.wake) }

// run saves and confirms positions until ctx ends. It returns an error that
// retrying cannot mend.
func (k *keeper) run(ctx context.Context) error {
	timer := time.NewTimer(quietInterval)
	defer timer.Stop()
	retry := backoff.Series{Range: saveWaits}
	var notBefore time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-timer.C:
		}
		wait := max(k.wait(), time.Until(notBefore))
		if wait <= 0 {
			wait = quietInterval
			switch err := k.advance(ctx); {
			case err == nil:
				retry.Reset()
			case ctx.Err() != nil:
				return nil
			case failure.ClassOf(err) != failure.Transient:
				k.failed = true
				return err
			default:
				wait = retry.Next()
				notBefore = time.Now().Add(wait)
				k.log.Warn("saving the checkpoint failed, will retry", zap.Error(err), zap.Duration("wait", wait))
			}
		}
		timer.Reset(wait)
	}
}

// wait is how long the tracker's position may still wait to be saved; 0 means
// that it is due.
func (k *keeper) wait() time.Duration {
	moved := int64(k.tracker.Position()) - int64(k.saved.Load())
	limit := quietInterval
	switch {
	case moved <= 0:
		return quietInterval
	case moved >= saveBytes:
		limit = k.interval / 5
	case k.acked.Load():
		limit = k.interval
	}
	return max(0, limit-time.Since(k.last().SavedAt))
}

// save makes cp durable, at the tracker's position where that is further, and
// confirms it. It is called through exclusive.
func (k *keeper) save(ctx context.Context, cp checkpoint.Checkpoint) error {
	k.acked.Store(false) // before the position is read: an ack in between counts for the next save
	cp.LSN, cp.SavedAt = max(cp.LSN, k.tracker.Position()), time.Now()
	k.enter(cp.Epoch)
	ctx, cancel := context.WithTimeoutCause(ctx, saveTimeout, errStoreSilent)
	defer cancel()
	err := k.store.Save(ctx, cp)
	if err != nil && errors.Is(context.Cause(ctx), errStoreSilent) {
		err = fmt.Errorf("%w: %w", errStoreSilent, err)
	}
	k.metrics.CheckpointSaved(err)
	if err != nil {
		k.acked.Store(true)
		return err
	}
	k.mu.Lock()
	k.current = cp
	k.mu.Unlock()
	k.saved.Store(uint64(cp.LSN))
	k.confirm()
	return nil
}

// enter has later checkpoints say epoch, although its first save may yet fail:
// if it reaches the store all the same, those of the epoch before do not count.
func (k *keeper) enter(epoch int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current.Epoch != 0 {
		k.current.Epoch = epoch
	}
}

// confirm tells the present stream, if any, the last saved position.
func (k *keeper) confirm() {
	if s := k.stream.Load(); s != nil {
		s.Confirm(wal.LSN(k.saved.Load()))
	}
}

// attach confirms on s from now on; nil detaches.
func (k *keeper) attach(s *wal.Stream) {
	k.stream.Store(s)
	k.confirm()
}
