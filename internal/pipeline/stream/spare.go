package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// spare is the knowledge of an instance standing by.
type spare struct {
	looked   time.Time     // when the requirements were last looked at
	fit      bool          // they were met
	wait     time.Duration // between two looks while they were not
	creating func(catalog.Waiting)

	holder orphan
}

// beingCreated reports whether the holder is still creating the slot, and tells
// readiness the cause of the wait. Events committed meanwhile never come.
func (s *source) beingCreated(ctx context.Context, sql *pgx.Conn, slot catalog.Slot, a *spare) bool {
	if !slot.Creating() {
		return false
	}
	a.fit = false
	text, remedy := fmt.Sprintf("slot %q is still being created by pid %d", slot.Name, slot.ActivePID), ""
	if w, err := catalog.ReadWaiting(ctx, sql, slot.ActivePID); err == nil {
		text += ", which waits for " + w.String()
		remedy = w.Remedy()
		a.creating(w)
	}
	s.health.waiting(text, remedy)
	return true
}

// couldTakeOver looks, now and then, whether the spare could read the slot, and
// tells readiness: a rolling update stops the good instance for a ready spare. An
// error ends the wait: ErrTakenOver once the slot's holder has saved a checkpoint
// after ours, or an error fatal at a start, unless the spare was fit a moment ago,
// as somebody may be changing the catalogs.
//
// A spare becomes fit only while the reader pid still has the slot: otherwise the
// look may have compared the spare with nobody.
func (s *source) couldTakeOver(ctx context.Context, sql *pgx.Conn, pid int32, a *spare) error {
	now := time.Now()
	if s.epoch == 0 && now.Sub(a.looked) < a.pause(s.limits.spareLook) {
		return nil
	}
	a.looked = now
	err := s.requirements(ctx, sql)
	if err == nil && !a.fit {
		slot, _, asked := catalog.ReadSlot(ctx, sql, s.opts.Slot)
		if asked != nil || slot.ActivePID != pid {
			return asked
		}
	}
	switch {
	case err == nil:
		s.health.standby(nil)
		s.outage.Over()
		if !s.unfit.Over() && !a.fit {
			s.log.Info("the slot is active elsewhere, standing by", zap.String("slot", s.opts.Slot))
		}
		a.fit, a.wait, s.fit = true, 0, time.Now()
		return nil
	case ctx.Err() != nil, errors.Is(err, ErrTakenOver):
		return err
	case failure.ClassOf(err) != failure.Transient && now.Sub(s.fit) > s.limits.unfit:
		return err
	case ofStore(err) && a.fit && now.Sub(s.fit) < s.limits.spareSilence:
		return nil
	}
	a.fit, a.wait = false, max(standbyPoll, 2*a.wait)
	s.health.standby(err)
	s.unfit.Failed("this spare could not take over", err)
	return nil
}

// pause is between two looks of a spare: longest or, for a while after unmet
// requirements, less.
func (a *spare) pause(longest time.Duration) time.Duration {
	if a.fit {
		return longest
	}
	return min(a.wait, longest)
}

// requirements is why a start would fail if the slot were free, or nil. It changes
// nothing.
func (s *source) requirements(ctx context.Context, sql *pgx.Conn) error {
	seen, view, invalid := s.inspect(ctx, sql)
	found, err := s.known(ctx, sql, seen, view)
	if err != nil {
		return err
	}
	if err := s.readable(ctx, sql, found, seen, view, invalid); err != nil {
		return err
	}
	if err := s.bind(ctx, sql); err != nil {
		return err
	}
	if err := s.unlike(ctx, sql); err != nil {
		return err
	}
	if err := s.sharesStore(ctx, sql, seen.Slot, found); err != nil {
		return err
	}
	if err := s.comparable(ctx, sql, found, seen); err != nil {
		return store.OwnFile(err, s.opts.Checkpoint, found, seen.Slot)
	}
	if err := s.admitted(ctx); err != nil {
		return err
	}
	return s.deliverable(ctx, found)
}

// admission is whether server and store would let the spare in at a takeover.
type admission struct {
	asked time.Time
	err   error
}

// admitted is why the server would refuse a stream's connection, or the store a
// checkpoint, or nil. Open connections outlast a change of the password or the
// revocation of a right.
func (s *source) admitted(ctx context.Context) error {
	now := time.Now()
	if now.Sub(s.admission.asked) < s.limits.spareLogin {
		return s.admission.err
	}
	repl, err := catalog.ConnectReplication(ctx, s.opts.URL)
	if err == nil {
		catalog.Close(repl)
		ctx, cancel := context.WithTimeout(ctx, s.limits.store)
		defer cancel()
		if err = store.Writable(ctx, s.kept); err != nil {
			err = &storeError{err}
		}
	} else {
		err = fmt.Errorf("open replication connection: %w", err)
	}
	if ctx.Err() == nil {
		s.admission = admission{now, err}
	}
	return err
}

// comparable compares the server with the checkpoint, as Verify does at a start.
func (s *source) comparable(ctx context.Context, sql *pgx.Conn, found *checkpoint.Checkpoint, seen checkpoint.Server) error {
	server, err := catalog.ReadServer(ctx, sql)
	if err != nil {
		return err
	}
	seen.SystemID, seen.Timeline, seen.Database, seen.CurrentLSN = server.SystemID, server.Timeline, server.Database, server.FlushLSN
	if found != nil && found.Timeline != seen.Timeline {
		repl, err := catalog.ConnectReplication(ctx, s.opts.URL)
		if err != nil {
			return err
		}
		defer catalog.Close(repl)
		if err := timelineSwitch(ctx, repl, found, &seen); err != nil {
			return err
		}
	}
	_, err = checkpoint.Verify(found, seen)
	if err != nil && s.repairer != nil && found.GapIn(err, seen) != nil {
		return nil // this instance would repair it
	}
	return err
}

// deliverable asks brokers whether the transactional id could be claimed, and whether
// events would find topics.
func (s *source) deliverable(ctx context.Context, found *checkpoint.Checkpoint) error {
	if s.transactions != nil {
		if err := s.transactions.Sink.Usable(ctx); err != nil {
			return err
		}
	}
	if s.routes == nil {
		return nil
	}
	var ends checkpoint.Ends
	if found != nil {
		ends = found.Ends
	}
	return s.routes(ctx, ends)
}

// heldBy notes the slot's reader, with a question for each new reader. The wait for
// the slot goes on without an answer.
func (h *Health) heldBy(ctx context.Context, sql *pgx.Conn, slot catalog.Slot) {
	h.mu.Lock()
	known := h.holder != nil && h.holder.PID == slot.ActivePID
	h.mu.Unlock()
	if known || slot.ActivePID == 0 {
		return
	}
	holder, _ := catalog.ReadHolder(ctx, sql, slot.ActivePID) // the number is known at least
	holder.FlushLag = nil                                     // of that moment
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holder = &holder
}

// standbysAre notes the instances waiting for the slot. The stream goes on after a
// failed question.
func (h *Health) standbysAre(standbys []catalog.Holder, err error) {
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.standbys = standbys
}

// elsewhere is how a spare notices that the slot's holder saves checkpoints in
// another place, such as a file on another machine. The holder saves before
// confirming. So a slot confirmed beyond the checkpoint seen by the spare has a
// later checkpoint elsewhere: a mistake in a configuration that would look like a
// loss at the takeover.
type elsewhere struct {
	shared bool                  // the holder's checkpoints are seen here
	seen   checkpoint.Checkpoint // the last one; of epoch 0 for none
	since  time.Time             // when seen was new, or not behind the slot
}

// errElsewhere is why a spare is not ready.
var errElsewhere = errors.New("the checkpoint of the instance that reads the slot is not there: it saves its checkpoints elsewhere, or has saved none yet")

// sharesStore returns an error while the slot's holder is another instance with
// checkpoints not seen here. slot was read before the checkpoint. The error is of
// class failure.Config once the checkpoint has stayed behind the slot, unchanged,
// for long.
func (s *source) sharesStore(ctx context.Context, sql *pgx.Conn, slot catalog.Slot, found *checkpoint.Checkpoint) error {
	if s.opts.Checkpoint.Store == store.StoreNone || s.epoch != 0 {
		return nil
	}
	if found != nil && found.Lost != nil && found.Lost.Gap != nil { // a repair saves none until it has ended
		return nil
	}
	e, now := &s.elsewhere, time.Now()
	var cp checkpoint.Checkpoint
	if found != nil {
		cp = *found
	}
	moved := !e.since.IsZero() && (cp.Epoch != e.seen.Epoch || cp.LSN != e.seen.LSN)
	here := found != nil && cp.LSN >= slot.ConfirmedFlush
	if here || moved || e.since.IsZero() {
		e.seen, e.since = cp, now
	}
	if e.shared = e.shared || here || moved; e.shared && now.Sub(e.since) < s.limits.elsewhere {
		return nil
	}
	verdict, err := s.savedElsewhere(ctx, sql, slot)
	if err != nil || verdict == nil || now.Sub(e.since) >= s.limits.elsewhere {
		return cmp.Or(err, verdict)
	}
	return &storeError{&failure.Error{Class: failure.Transient, Err: errElsewhere, Remedy: store.ShareRemedy(s.opts.Checkpoint)}}
}

// savedElsewhere is the verdict, if the holder is a cdc-outbox. Any other reader
// takes events away, as the comparison of slot and checkpoint reports.
func (s *source) savedElsewhere(ctx context.Context, sql *pgx.Conn, slot catalog.Slot) (verdict, err error) {
	reader, ok, err := catalog.ReadClient(ctx, sql, slot.ActivePID)
	if err != nil || !ok || !reader.Namesake {
		return nil, err
	}
	here, _ := os.Hostname()
	at := "there is none"
	if seen := s.elsewhere.seen; seen.Epoch != 0 {
		at = fmt.Sprintf("it stays at %s", seen.LSN)
	}
	return failure.Configf(store.ShareRemedy(s.opts.Checkpoint),
		"another instance, connected from %s, reads slot %q and saves its checkpoints where this one, on %s, does not see them: "+
			"the slot is confirmed up to %s, but in checkpoint.store %s %s", reader.Address, slot.Name, here, slot.ConfirmedFlush, s.opts.Checkpoint.Store, at), nil
}
