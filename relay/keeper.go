package relay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
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
	// saveRetry is the pause after a save that failed.
	saveRetry = time.Second
)

// keeper makes the acked position durable and then has it confirmed, in this
// order: the slot's confirmed position never passes the checkpoint, so a slot
// that did was moved by somebody else.
type keeper struct {
	store    checkpoint.Store
	tracker  *checkpoint.Locked
	interval time.Duration
	metrics  Metrics
	log      *zap.Logger
	wake     chan struct{} // capacity 1: the tracker's position may have moved

	acked  atomic.Bool                // an event was acked since the last save
	saved  atomic.Uint64              // LSN of the last save
	stream atomic.Pointer[wal.Stream] // to confirm on; nil between connections

	mu      sync.Mutex            // one save at a time
	current checkpoint.Checkpoint // as last saved
}

// begin sets what the next checkpoints say besides the position, and saves the
// first of them.
func (k *keeper) begin(ctx context.Context, cp checkpoint.Checkpoint) error {
	k.mu.Lock()
	k.current = cp
	k.mu.Unlock()
	return k.save(ctx, cp.LSN)
}

// finish saves the last position, once run has ended.
func (k *keeper) finish(ctx context.Context) {
	pos := k.tracker.Position()
	if begun := k.last().Slot != ""; !begun || pos <= wal.LSN(k.saved.Load()) {
		return
	}
	if err := k.save(ctx, pos); err != nil {
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
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-timer.C:
		}
		wait := k.wait()
		if wait == 0 {
			if err := k.save(ctx, k.tracker.Position()); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				if failure.ClassOf(err) != failure.Transient {
					return err
				}
				k.log.Warn("saving the checkpoint failed, will retry", zap.Error(err))
				wait = saveRetry
			} else {
				wait = quietInterval
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

// save makes pos durable and confirms it.
func (k *keeper) save(ctx context.Context, pos wal.LSN) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.acked.Store(false)
	cp := k.current
	cp.LSN, cp.SavedAt = pos, time.Now()
	err := k.store.Save(ctx, cp)
	k.metrics.CheckpointSaved(err)
	if err != nil {
		k.acked.Store(true)
		return fmt.Errorf("save checkpoint: %w", err)
	}
	k.current = cp
	k.saved.Store(uint64(pos))
	k.confirm()
	return nil
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
