package stream

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/digest"
)

// spare is what a spare knows of its checkpoint store, which it needs for
// nothing until it takes over.
type spare struct{ asked, answered time.Time }

// askStore asks the store when it is time, and tells readiness. It returns
// ErrTakenOver once the slot's holder has saved a checkpoint after one of ours:
// for that it is always time.
func (s *source) askStore(ctx context.Context, a *spare) error {
	now := time.Now()
	if a.answered.IsZero() { // tryAcquire has just been there
		a.asked, a.answered = now, now
	}
	if s.epoch == 0 && now.Sub(a.asked) < s.limits.spareLook {
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
		h.storeErr = err.Error()
	}
}
