package stream

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"
)

// begin starts an epoch of checkpoints as the slot's holder, and publishes a pending
// snapshot.
func (s *source) begin(ctx context.Context, sql *pgx.Conn, h *acquired) error {
	defer h.snapshot.Release()
	if s.transactions != nil { // the rest may have to wait for Kafka
		s.health.answered()
	}
	for h.next != phase.Replay {
		seen, err := s.take(ctx, sql, h)
		if err == nil {
			h.next, err = s.phase.On(seen)
		}
		if err != nil {
			return err
		}
	}
	return s.replay(ctx, sql, h)
}

// take takes the next step of a session with the slot, and returns the event seen.
func (s *source) take(ctx context.Context, sql *pgx.Conn, h *acquired) (phase.Event, error) {
	switch h.next {
	case phase.Claim:
		return phase.Alone, s.alone(ctx, sql, h)
	case phase.Compare:
		return s.again(ctx, sql, h)
	case phase.Repair:
		return phase.Repaired, s.repair(ctx, sql, h)
	case phase.Save:
		return phase.Saved, s.enter(ctx, sql, h)
	}
	return phase.Lost, errPassed
}

// alone returns once no other process can write to Kafka.
func (s *source) alone(ctx context.Context, sql *pgx.Conn, h *acquired) error {
	if s.transactions != nil {
		return s.claim(ctx)
	}
	return s.outlive(ctx, sql, h.predecessors)
}

// lead begins the lease.
func (s *source) lead(ctx context.Context, sql *pgx.Conn, h *acquired) error {
	until, err := h.tenure.asked(func() (catalog.Slot, error) {
		slot, _, err := catalog.ReadSlot(ctx, sql, s.opts.Slot)
		return slot, err
	})
	switch {
	case err == nil:
		h.tenure.begin(until)
	case !errors.Is(err, errNotReader): // or the stream says why
		return err
	}
	return nil
}

// enter saves the first, numbered checkpoint of an epoch. A loss showing before is
// in the checkpoint.
func (s *source) enter(ctx context.Context, sql *pgx.Conn, h *acquired) error {
	if err := s.lead(ctx, sql, h); err != nil {
		return err
	}
	if err := s.number(ctx, sql, &h.cp); err != nil {
		return err
	}
	if h.cp.Snapshot && h.snapshot != nil { // with the first checkpoint: later nobody knows what the slot has
		var err error
		if h.cp.Initial, err = s.planSnapshot(ctx, sql, h.snapshot); err != nil {
			return err
		}
	}
	if err := s.fitsSnapshot(&h.cp); err != nil {
		return err
	}
	earlier := h.found
	if h.gap != nil {
		earlier = nil // the slot has nothing of the log before
	}
	if err := s.tables.begin(earlier, s.scope(), h.confirmed); err != nil {
		return s.noteLoss(ctx, h.cp, err)
	}
	if err := s.compareEnds(ctx, h.found); err != nil {
		return s.noteLoss(ctx, h.cp, err)
	}
	if err := s.recallDoubtful(ctx, &h.cp); err != nil {
		return err
	}
	if err := s.nothingLeft(ctx, &h.cp); err != nil {
		return err
	}
	if err := s.warden.load(ctx, &h.cp); err != nil {
		return err
	}
	s.epoch = h.cp.Epoch // a failed save may still have reached the store
	if err := s.checkpointer.begin(ctx, h.cp); err != nil {
		return err
	}
	s.warden.begin()
	s.health.active(h.unbound)
	return s.intake.beginAt(h.cp.LSN)
}

// nothingLeft refuses to go on where events are parked in a topic out of use. From then on the
// checkpoint names the topic in use.
func (s *source) nothingLeft(ctx context.Context, cp *checkpoint.Checkpoint) error {
	if s.left != nil {
		if err := s.left(ctx, cp.Quarantine); err != nil {
			return err
		}
	}
	cp.Quarantine = s.warden.topic()
	return nil
}

// replay has the intake read the stream, and publishes the snapshot.
func (s *source) replay(ctx context.Context, sql *pgx.Conn, h *acquired) error {
	cp := h.cp
	past := checkpoint.Past{Slot: h.confirmed, Start: h.start, Known: cp.LSN, Since: cp.Landmark, Cut: cp.Cut, Skip: cp.Skip}
	s.visibility.meet(s.server, &cp)
	if err := s.intake.resume(past); err != nil {
		return err
	}
	s.unfit.Over()
	level := zap.DebugLevel // of a session failing like those before
	if !s.health.fallsBack() {
		level = zap.InfoLevel
		s.outage.Over()
	}
	s.log.Log(level, "streaming", zap.String("slot", cp.Slot), zap.String("publication", s.opts.Publication),
		zap.Stringer("checkpoint", cp.LSN), zap.Stringer("start", h.start), zap.Int32("timeline", cp.Timeline))
	if !cp.Snapshot {
		return nil
	}
	return s.snapshot(ctx, sql, cp, h.snapshot)
}

// recognised notes that the log is the same as before. Everything published is
// confirmed from then on, not earlier: positions of another log must not be.
func (s *source) recognised() error {
	if s.phase.Now() != phase.Replaying {
		return nil
	}
	_, err := s.phase.On(phase.Recognised)
	if err == nil {
		s.visibility.follow()
		s.checkpointer.attach(s.tenure.stream)
	}
	return err
}

// errPassed ends a session: another instance, or an operator, used the slot
// between our look at it and the start of our stream.
var errPassed = errors.New("the slot was used by somebody else while it was taken over; looking at it again")

// again looks at slot and checkpoint once more. Now the slot is held, so nobody
// else can move them. tryAcquire looked earlier.
func (s *source) again(ctx context.Context, sql *pgx.Conn, h *acquired) (phase.Event, error) {
	slot, _, err := catalog.ReadSlot(ctx, sql, s.opts.Slot)
	if err != nil {
		return phase.Lost, err
	}
	ours := max(h.cp.LSN, s.checkpointer.confirmed()) // perhaps confirmed by the stream
	ours = min(ours, h.start)                         // behind a later position, the server begins later than asked
	now, err := s.load(ctx, 0)
	if err != nil {
		return phase.Lost, err
	}
	if now != nil && h.gap == nil { // a new slot's position confirms nothing
		*now = now.Confirmed(slot.ConfirmedFlush)
	}
	if slot.ConfirmedFlush > ours || !sameCheckpoint(h.found, now, s.epoch) {
		return phase.Passed, nil
	}
	if h.gap != nil {
		return phase.Lacking, nil
	}
	return phase.Same, nil
}

// sameCheckpoint reports whether nobody else saved a checkpoint between two
// loads. own is our epoch. The rows of a snapshot do not move the position.
func sameCheckpoint(before, now *checkpoint.Checkpoint, own int64) bool {
	if before == nil || now == nil {
		return before == now
	}
	return before.Epoch == now.Epoch &&
		(before.LSN == now.LSN && before.Cut == now.Cut && len(before.Doubtful) == len(now.Doubtful) &&
			before.Snapshot == now.Snapshot && before.Initial.Published() == now.Initial.Published() || now.Epoch == own)
}

// compareEnds compares the brokers' acknowledgements as of the checkpoint with their
// present records, before anything else is written.
func (s *source) compareEnds(ctx context.Context, found *checkpoint.Checkpoint) error {
	if found == nil {
		return nil
	}
	return s.checkpointer.exclusive(ctx, func() error { return anew(s.compare(ctx, found.Ends)) })
}

// noteLoss saves a checkpoint with the loss, if err is a loss, and returns err. The
// slot is held, so that no other instance goes on before.
func (s *source) noteLoss(ctx context.Context, cp checkpoint.Checkpoint, err error) error {
	err = s.checkpointer.remember(err)
	if s.checkpointer.losing() == nil {
		return err
	}
	ctx, cancel := s.ending(ctx)
	defer cancel()
	if failed := s.checkpointer.begin(ctx, cp); failed != nil {
		s.checkpointer.unsaid(failed)
	}
	return err
}

// noted is noteLoss of the error at a session's end, if a loss would not show later.
func (s *source) noted(ctx context.Context, err error) error {
	if failure.ClassOf(err) != failure.Loss || s.checkpointer.losing() == nil {
		return err
	}
	return s.noteLoss(ctx, s.checkpointer.last(), err)
}

// number gives the checkpoint an epoch higher than the epoch found and, by the
// server's clock, higher than that of an earlier holder with a first checkpoint
// still on the way to the store.
func (s *source) number(ctx context.Context, sql *pgx.Conn, cp *checkpoint.Checkpoint) error {
	now, err := catalog.Now(ctx, sql)
	if err != nil {
		return err
	}
	cp.Epoch = max(cp.Epoch, now.UnixMicro())
	return nil
}
