package stream

import (
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
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// spare is what a spare knows of its checkpoint store. It does not need the
// store before it takes over, but must know that it could use it.
type spare struct {
	asked, answered time.Time

	looked   time.Time // when it last looked whether it could run
	fit      bool      // it could
	creating func(catalog.Waiting)

	holder orphan
}

// beingCreated reports whether the slot's holder still creates it, and tells
// readiness for whom that waits. What is committed meanwhile never comes.
func (s *source) beingCreated(ctx context.Context, sql *pgx.Conn, slot catalog.Slot, a *spare) bool {
	if !slot.Creating() {
		return false
	}
	a.fit = false
	text := fmt.Sprintf("slot %q is still being created by pid %d", slot.Name, slot.ActivePID)
	if w, err := catalog.ReadWaiting(ctx, sql, slot.ActivePID); err == nil {
		text += ", which waits for " + w.String()
		a.creating(w)
	}
	s.health.waiting(text)
	return true
}

// couldRun reports whether a spare could read the tables if it had the slot, and
// makes it stand by. A mistake in its configuration, found at the takeover, would
// be found too late: a rolling update stops the good instance for a spare that is
// ready.
func (s *source) couldRun(ctx context.Context, sql *pgx.Conn, a *spare) bool {
	if a.fit && time.Since(a.looked) < s.limits.spareLook {
		return true
	}
	a.looked = time.Now()
	_, view, err := s.inspect(ctx, sql)
	if err != nil {
		err = s.sinceCheckpoint(ctx, sql, nil, view, err)
	} else {
		err = s.bind(ctx, sql)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.fit = false
		s.health.cannotRun(err)
		s.intake.digest.Note(digest.Kind{Level: zap.WarnLevel, Message: "a spare could not take over as it is configured"}, zap.Error(err), remedy(err))
	case !a.fit:
		a.fit = true
		if s.health.standby() {
			s.log.Info("the slot is active elsewhere, standing by", zap.String("slot", s.opts.Slot))
		}
	}
	return a.fit
}

// cannotRun notes why a spare could not take over.
func (h *Health) cannotRun(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pgErr, h.remedy = err.Error(), failure.RemedyOf(err)
}

// askStore asks the store now and then, and tells readiness. It returns
// ErrTakenOver once the slot's holder has saved a checkpoint after one of ours;
// a process that has held the slot itself asks each time for that reason.
func (s *source) askStore(ctx context.Context, a *spare) error {
	now := time.Now()
	if a.answered.IsZero() { // tryAcquire has just asked the store
		a.asked, a.answered = now, now
	}
	if s.epoch == 0 && now.Sub(a.asked) < s.limits.spareLook {
		return nil
	}
	a.asked = now
	_, err := s.load(ctx, 0)
	switch {
	case errors.Is(err, ErrTakenOver), errors.Is(err, checkpoint.ErrOtherSlot), ctx.Err() != nil:
		return err
	case err == nil:
		a.answered = time.Now()
		s.health.storeAnswers(nil)
	case time.Since(a.answered) >= s.limits.spareSilence:
		s.health.storeAnswers(err)
		s.intake.digest.Note(digest.Kind{Level: zap.WarnLevel, Message: "a spare cannot read its checkpoint and could not take over"},
			zap.Error(err), remedy(err))
	}
	return nil
}

// storeAnswers notes that a spare's checkpoint store answers (nil), or why not.
func (h *Health) storeAnswers(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.storeErr = ""
	if err != nil {
		h.storeErr, h.remedy = err.Error(), failure.RemedyOf(err)
	}
}

// heldBy notes who reads the slot. It asks once for each holder; an answer that
// does not come is no reason to stop waiting for the slot.
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

// standbysAre notes who waits for the slot that this instance reads. A question
// that fails is no reason to stop reading it.
func (h *Health) standbysAre(standbys []catalog.Holder, err error) {
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.standbys = standbys
}

// elsewhereTimeout bounds a comparison: meanwhile the slot may become free. It is longer
// than one silent broker holds up the read of a checkpoint.
const elsewhereTimeout = 5 * time.Second

// elsewhere is how a spare finds out that the slot's holder saves its
// checkpoints somewhere else, such as in a file on another machine. The holder
// saves before it confirms. So if the slot's confirmed position is beyond the
// checkpoint that the spare sees, the holder saved it in another place. Found
// now, this is a mistake in a configuration. At the takeover it would look like
// a loss.
type elsewhere struct {
	looked time.Time
	first  pg.LSN                // of the slot, when there was no checkpoint
	seen   checkpoint.Checkpoint // the last one; of epoch 0, at first, for none
	since  time.Time             // when seen was new, or not behind the slot
}

// sharesStore returns an error once it is certain that another instance holds
// the slot and saves its checkpoints where this one does not look.
func (s *source) sharesStore(ctx context.Context, sql *pgx.Conn, slot catalog.Slot) error {
	e := &s.elsewhere
	if !slot.Active || s.opts.Checkpoint.Store == store.StoreNone || time.Since(e.looked) < s.limits.elsewhereLook {
		return nil
	}
	e.looked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, elsewhereTimeout)
	defer cancel()
	cp, ok, err := s.ownCheckpoint(ctx) // after the slot was read
	if err != nil {
		return nil // the takeover loads it, too
	}
	if !ok || cp.Creating { // a holder that has just begun has not saved yet, nor confirmed
		if e.first == 0 {
			e.first = slot.ConfirmedFlush
		}
		cp = checkpoint.Checkpoint{LSN: e.first}
	}
	cp = cp.Confirmed(slot.ConfirmedFlush)
	behind := cp.LSN < slot.ConfirmedFlush
	if !behind || cp.Epoch != e.seen.Epoch || cp.LSN != e.seen.LSN {
		e.seen, e.since = cp, time.Now()
	}
	if !behind || time.Since(e.since) < s.limits.elsewhere {
		return nil
	}
	return s.savedElsewhere(ctx, sql, slot)
}

// savedElsewhere is the error, if the holder is a cdc-outbox. Any other program
// that reads the slot takes events away, and the takeover reports that.
func (s *source) savedElsewhere(ctx context.Context, sql *pgx.Conn, slot catalog.Slot) error {
	var ours bool
	var address string
	err := sql.QueryRow(ctx, `
		SELECT application_name = current_setting('application_name'), COALESCE(host(client_addr), 'a Unix socket')
		  FROM pg_stat_activity WHERE pid = $1 AND application_name IS NOT NULL`, slot.ActivePID,
	).Scan(&ours, &address)
	if err != nil || !ours { // it may have gone, or be another role's
		return nil
	}
	here, _ := os.Hostname()
	at := "there is none"
	if s.elsewhere.seen.Epoch != 0 {
		at = fmt.Sprintf("it stays at %s", s.elsewhere.seen.LSN)
	}
	return failure.Configf(store.ShareRemedy(s.opts.Checkpoint),
		"another instance, connected from %s, reads slot %q and saves its checkpoints where this one, on %s, does not see them: "+
			"the slot is confirmed up to %s, but in checkpoint.store %s %s", address, slot.Name, here, slot.ConfirmedFlush, s.opts.Checkpoint.Store, at)
}
