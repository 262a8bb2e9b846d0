package stream

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/digest"
)

const (
	// spareLook is how often a spare asks its checkpoint store.
	spareLook = 3 * time.Second
	// spareSilence is how long the store may be silent until the spare is not
	// ready: it could not take over.
	spareSilence = 8 * time.Second
)

// spare is what a spare knows of its checkpoint store. It does not need the
// store before it takes over, but must know that it could use it.
type spare struct{ asked, answered time.Time }

// askStore asks the store now and then, and tells readiness. It returns
// ErrTakenOver once the slot's holder has saved a checkpoint after one of ours;
// a process that has held the slot itself asks each time for that reason.
func (s *source) askStore(ctx context.Context, a *spare) error {
	now := time.Now()
	if a.answered.IsZero() { // tryAcquire has just asked the store
		a.asked, a.answered = now, now
	}
	if s.epoch == 0 && now.Sub(a.asked) < spareLook {
		return nil
	}
	a.asked = now
	_, err := s.load(ctx, 0)
	switch {
	case errors.Is(err, ErrTakenOver), ctx.Err() != nil:
		return err
	case err == nil:
		a.answered = time.Now()
		s.health.storeAnswers(nil)
	case time.Since(a.answered) >= spareSilence:
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
		h.storeErr = err.Error()
	}
}
