package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

func TestRunUntilDone(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		p := f.processor()
		// The outcome is recorded later, and the handler not called again.
		calls := 0
		f.store.fail(always(storage.OpComplete), nil)
		time.AfterFunc(time.Minute, func() { f.store.fail(nil, nil) })
		r, err := p.RunUntilDone(t.Context(), f.message, func(context.Context) ([]byte, error) {
			if calls++; calls < 3 {
				return nil, errHandler
			}
			return succeed(t.Context())
		})
		if r.Disposition != idempotency.Handled || err != nil || calls != 3 {
			t.Errorf("%+v, %v, %d calls", r, err, calls)
		}
		f.message.Key.ID = "stopped"
		ctx, cancel := context.WithCancelCause(t.Context())
		stopping := errors.New("stopping")
		time.AfterFunc(time.Minute, func() { cancel(stopping) })
		r, err = p.RunUntilDone(ctx, f.message, failing)
		if r.Done() || !errors.Is(err, stopping) || !errors.Is(err, errHandler) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
