package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// saveBytes of log make a position worth a save before the interval is over. So
// the slot of an idle outbox stays close behind busy tables.
const saveBytes = 256 << 10

// transactionsApart is the least time between two Kafka transactions with nothing
// but a position, behind saveBytes of log. Each is a round trip to the
// coordinator, and another record; the log of a second costs the server nothing.
const transactionsApart = time.Second

// saveAgain is when the last checkpoint is saved once more, while the slot is
// held. A paused former holder may write an old checkpoint to Kafka after ours,
// and compaction leaves the last.
const saveAgain = 10 * time.Minute

// saveWaits are those between attempts at a save.
var saveWaits = backoff.Range{First: 100 * time.Millisecond, Longest: 5 * time.Second}

// checkpointer makes the acked position durable first, and then confirms. A slot
// confirmed beyond the checkpoint was moved by somebody else.
//
// begin must be called before the tracker gets a position: begin gives all else
// of a checkpoint.
type checkpointer struct {
	store    checkpoint.Store
	tracker  *checkpoint.Locked
	interval time.Duration
	quiet    time.Duration // see limits
	apart    time.Duration // least time between two saves for the sake of saveBytes
	metrics  checkpointMetrics
	log      *zap.Logger
	wake     chan struct{} // capacity 1: the tracker's position may have moved
	saving   chan struct{} // capacity 1: full during a save, or a transaction with one
	progress *saving       // for health and metrics
	initial  *initial      // the rows of a snapshot, for its checkpoints

	acked  atomic.Bool                // an event was acked since the last save
	saved  atomic.Uint64              // LSN of the last save
	stream atomic.Pointer[wal.Stream] // to confirm on; nil between connections
	// ends are the brokers' acknowledgements. With exactly once the sink adds them.
	ends func() checkpoint.Ends
	// holds tells whether the present stream is known to be of the same log as
	// before.
	holds func() bool

	mu      sync.Mutex            // never held during a save
	current checkpoint.Checkpoint // as last saved, in the present epoch
	seen    string                // the publication at the last look, for the next checkpoint
	passed  uint64                // the horizon of a look with its end passed; likewise
	coming  horizon               // of a later look, with its end ahead; zero: none
	owned   checkpoint.Owned      // likewise
	lost    *checkpoint.Lost      // likewise; nil: nothing
	mending checkpoint.Mending    // likewise; zero: none
	demands demands
}

func newCheckpointer(store checkpoint.Store, tracker *checkpoint.Locked, interval time.Duration, m checkpointMetrics, log *zap.Logger) *checkpointer {
	k := &checkpointer{
		store:    store,
		tracker:  tracker,
		interval: interval,
		quiet:    usual.quiet,
		apart:    interval / 5,
		metrics:  m,
		log:      log,
		wake:     make(chan struct{}, 1),
		saving:   make(chan struct{}, 1),
		initial:  &initial{},
		ends:     func() checkpoint.Ends { return nil },
	}
	k.holds = func() bool { return k.stream.Load() != nil }
	k.progress = &saving{outage: digest.NewOutage(log, savedAgain), ahead: k.ahead}
	return k
}

// begin sets all but the position of the next checkpoints, and saves the first.
func (k *checkpointer) begin(ctx context.Context, cp checkpoint.Checkpoint) error {
	return k.exclusive(ctx, func() error { return k.try(ctx, cp) })
}

// advance saves the tracker's position.
func (k *checkpointer) advance(ctx context.Context) error {
	return k.exclusive(ctx, func() error { return k.try(ctx, k.last()) })
}

// exclusive calls fn while no other save is in progress.
func (k *checkpointer) exclusive(ctx context.Context, fn func() error) error {
	select {
	case k.saving <- struct{}{}:
		defer func() { <-k.saving }()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fn()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finish saves the last position, once run has ended with the error.
func (k *checkpointer) finish(ctx context.Context, ended error) {
	if ended != nil && k.losing() == nil || !k.ahead() && !k.changed() && !k.behindHorizon() && !k.furtherRows() {
		return
	}
	err := k.advance(ctx)
	switch {
	case err == nil:
	case k.last().Lost != nil || k.losing() == nil:
		k.log.Warn("the last checkpoint was not saved; some events may be sent again", zap.Error(err))
	default:
		k.unsaid(err)
	}
}

// unsaid logs why the loss of losing could not be saved.
func (k *checkpointer) unsaid(err error) {
	k.log.Error("the checkpoint does not say what was lost, so that a restart may go on without a word: do not restart before it is accepted",
		zap.Error(err), zap.String("lost", k.losing().Text))
}

// behindHorizon reports whether the last checkpoint's horizon is out of date. A
// running pipeline does not save a checkpoint for the horizon alone: each save
// into the database makes another.
func (k *checkpointer) behindHorizon() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pass(k.current.LSN)
	return k.current.Epoch != 0 && k.passed > k.current.Horizon
}

// losing is the loss in the next checkpoints; nil: none.
func (k *checkpointer) losing() *checkpoint.Lost {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost
}

// last returns the checkpoint saved last.
func (k *checkpointer) last() checkpoint.Checkpoint {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// follow notes the publication of the last look, for the next checkpoints. The
// caller has compared both looks: a new membership was seen beside an older one,
// so no row was left out. Never blocks.
func (k *checkpointer) follow(publication string, h horizon) {
	k.mu.Lock()
	news := publication != k.seen
	k.seen = publication
	k.pass(max(k.current.LSN, k.tracker.Position()))
	if k.coming.id == 0 {
		k.coming = h
	}
	k.mu.Unlock()
	if news {
		session.Wake(k.wake)
	}
}

// horizon is a look's, for positions behind end: see checkpoint.Checkpoint.
type horizon struct {
	id  uint64
	end pg.LSN
}

// pass notes that the position has been reached. The caller holds mu.
func (k *checkpointer) pass(position pg.LSN) {
	if k.coming.id != 0 && position >= k.coming.end {
		k.passed, k.coming = k.coming.id, horizon{}
	}
}

// own notes the owned tables for the next checkpoints. Never blocks.
func (k *checkpointer) own(owned checkpoint.Owned) {
	k.mu.Lock()
	k.owned = owned
	k.mu.Unlock()
	session.Wake(k.wake)
}

// remember puts the loss, if err is a loss, into the next checkpoints. It returns err.
func (k *checkpointer) remember(err error) error {
	if lost := checkpoint.LostBy(err); lost != nil {
		k.mu.Lock()
		k.lost = lost
		k.mu.Unlock()
	}
	return err
}

// ended notes the ends, in the topic, of the parked events settled by the last checkpoint.
func (k *checkpointer) ended() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current.Settled = nil
}

// publication is follow's last.
func (k *checkpointer) publication() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen
}

// changed reports whether the catalogs showed something missing in the last
// checkpoint.
func (k *checkpointer) changed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current.Epoch != 0 && (k.current.Publication != k.seen || k.current.Lost != k.lost || k.mending.Mends(k.current.Accepted) || !k.current.Owned.SameTables(k.owned))
}

// event notes acked events, and wakes run only if a save has become more urgent.
func (k *checkpointer) event() {
	first, behind := !k.acked.Swap(true), k.progress.moved()
	if first || behind || k.unsaved() >= saveBytes {
		session.Wake(k.wake)
	}
}

// moved wakes run for a new position.
func (k *checkpointer) moved() {
	k.progress.moved()
	session.Wake(k.wake)
}

// unsaved is how many bytes of log the tracker's position is beyond the last save.
func (k *checkpointer) unsaved() int64 { return int64(k.tracker.Position()) - int64(k.saved.Load()) }

// ahead tells whether there is a position to save.
func (k *checkpointer) ahead() bool { return k.unsaved() > 0 }

// run saves and confirms positions until ctx ends (nil) or retrying does not help
// (the error).
func (k *checkpointer) run(ctx context.Context) error {
	timer := time.NewTimer(k.quiet)
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
			wait = k.quiet
			switch err := k.advance(ctx); {
			case err == nil:
				retry.Reset()
			case ctx.Err() != nil:
				return nil
			case errors.Is(err, store.ErrSuperseded):
				return fmt.Errorf("%w: %w", ErrTakenOver, err)
			case failure.ClassOf(err) != failure.Transient, errors.Is(err, ErrBeginAnew):
				return err
			default:
				wait = retry.Next()
				notBefore = time.Now().Add(wait)
				k.progress.retried(err)
			}
		}
		timer.Reset(wait)
	}
}

// furtherRows reports whether more rows of a snapshot are published than the last
// checkpoint knows.
func (k *checkpointer) furtherRows() bool {
	cp := k.last()
	return k.initial.ahead(&cp)
}

// wait is how long the tracker's position may still wait to be saved; 0: the save
// is due.
func (k *checkpointer) wait() time.Duration {
	moved := k.unsaved()
	limit := k.quiet
	switch {
	case k.changed(), k.furtherRows():
		limit = k.interval
	case moved <= 0 && !k.holds():
		return k.quiet
	case moved <= 0:
		return min(k.quiet, max(0, saveAgain-time.Since(k.last().SavedAt)))
	case moved >= saveBytes:
		limit = k.apart
	case k.acked.Load(), k.awaited():
		limit = k.interval
	}
	return max(0, limit-time.Since(k.last().SavedAt))
}

// try calls save, and notes the result for health and metrics.
func (k *checkpointer) try(ctx context.Context, cp checkpoint.Checkpoint) error {
	began := time.Now()
	k.progress.begin()
	err := k.save(ctx, cp)
	switch {
	case err == nil:
		k.progress.succeeded(began)
	case ctx.Err() != nil:
		k.progress.cancelled()
	default:
		k.progress.failed(err)
	}
	return err
}

// save makes cp durable, at the tracker's position if further, and confirms. It
// is called through exclusive.
func (k *checkpointer) save(ctx context.Context, cp checkpoint.Checkpoint) error {
	k.acked.Store(false) // before the position is read: an ack in between is for the next save
	position, landmark := k.tracker.Progress()
	if last := k.last(); last.Epoch != 0 { // the tracker may not know yet of the last Kafka transaction
		cp = cp.Reached(last.LSN, last.Landmark, last.Cut)
		cp.Settled = last.Settled
	}
	cp = k.dated(cp.Reached(position, landmark, checkpoint.Cut{}))
	k.enter(cp.Epoch)
	err := k.store.Save(ctx, cp)
	k.metrics.CheckpointSaved(err)
	if err != nil {
		k.acked.Store(true)
		return err
	}
	k.durable(cp)
	return nil
}

// dated returns cp as of now: with the time, the last look's findings, and the brokers'
// acknowledgements.
func (k *checkpointer) dated(cp checkpoint.Checkpoint) checkpoint.Checkpoint {
	cp.Ends = k.ends()
	k.mu.Lock()
	defer k.mu.Unlock()
	cp.SavedAt, cp.Publication, cp.Owned, cp.Lost = time.Now(), k.seen, k.owned, k.lost
	if k.mending.Mends(cp.Accepted) {
		cp.Accepted = nil
	}
	if rows := k.initial.published(); cp.Snapshot && rows != nil && (cp.Initial == nil || rows.Rows >= cp.Initial.Rows) {
		cp.Initial = rows
	}
	k.pass(cp.LSN)
	cp.Horizon = max(cp.Horizon, k.passed)
	return cp
}

// durable notes cp as durable, and confirms.
func (k *checkpointer) durable(cp checkpoint.Checkpoint) {
	k.mu.Lock()
	was := k.current.Accepted
	k.current = cp
	k.mu.Unlock()
	if was != nil && cp.Accepted == nil {
		k.tellMended(was)
	}
	k.saved.Store(uint64(cp.LSN))
	k.confirm()
}

// enter sets the epoch of all later checkpoints, even before the first save has
// succeeded. The save may fail and still reach the store, and then checkpoints of
// the old epoch would not count.
func (k *checkpointer) enter(epoch int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current.Epoch != 0 {
		k.current.Epoch = epoch
	}
}

// confirm tells the present stream, if any, the last saved position.
func (k *checkpointer) confirm() {
	if s := k.stream.Load(); s != nil {
		s.Confirm(k.confirmed())
	}
}

// confirmed is the last saved position.
func (k *checkpointer) confirmed() pg.LSN { return pg.LSN(k.saved.Load()) }

// received is how far the present stream was read; 0: no stream.
func (k *checkpointer) received() pg.LSN {
	if s := k.stream.Load(); s != nil {
		return s.Received()
	}
	return 0
}

// silent is how long the present stream has waited for any message of the server.
func (k *checkpointer) silent() time.Duration {
	if s := k.stream.Load(); s != nil {
		return s.Silent()
	}
	return 0
}

// lag is how long an acked event has waited to be saved.
func (k *checkpointer) lag() time.Duration {
	if !k.acked.Load() {
		return 0
	}
	return k.age()
}

// load returns the checkpoint of the slot; ok is false where the store has none. A checkpoint
// of another slot under the key is an error.
func (k *checkpointer) load(ctx context.Context, slot, key string) (cp checkpoint.Checkpoint, ok bool, err error) {
	cp, ok, err = k.store.Load(ctx)
	if err == nil && ok {
		err = cp.OfSlot(slot, key)
	}
	if err != nil {
		err = fmt.Errorf("load checkpoint: %w", err)
	}
	return cp, ok, err
}

// note saves a Beginning, before the slot exists.
func (k *checkpointer) note(ctx context.Context, beginning checkpoint.Checkpoint) error {
	if err := k.store.Save(ctx, beginning); err != nil {
		return fmt.Errorf("note that a slot is created: %w", err)
	}
	return nil
}

// attach confirms on s from now on; nil detaches.
func (k *checkpointer) attach(s *wal.Stream) {
	k.forgetDemands()
	k.stream.Store(s)
	k.confirm()
}
