package identity

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A source without an answer holds logins back for less time while the former value serves.
func TestSilentSourceBesideAValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := false
		k := newKept(func(ctx context.Context) (string, time.Time, error) {
			if silent {
				<-ctx.Done()
				return "", time.Time{}, context.Cause(ctx)
			}
			return "token", time.Now().Add(time.Minute), nil
		}, time.Now)
		get := func(value string, took time.Duration, failed error) {
			t.Helper()
			began := time.Now()
			got, err := k.get(t.Context(), "")
			if got != value || !errors.Is(err, failed) || time.Since(began) != took {
				t.Errorf("got %q, %v after %s", got, err, time.Since(began))
			}
		}
		get("token", 0, nil)
		silent = true
		must.OK(t, backoff.Sleep(t.Context(), 40*time.Second))
		get("token", earlyTimeout, nil)
		get("token", 0, nil) // not asked again at once
		must.OK(t, backoff.Sleep(t.Context(), 20*time.Second))
		get("", answerTimeout, errNoAnswer)
	})
}
