package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
)

// errScopeTaken ends Run: another group handles records under the same scope.
// What it has handled would be skipped here, and the other way round.
var errScopeTaken = errors.New("another consumer group uses the same scope")

const (
	// scopeID is the id of the message by which a group makes its scope known.
	// The handler's result is the group's name.
	scopeID       = "cdc-outbox/group"
	scopeInterval = time.Minute // between two looks at the scope
)

// scopeWatch finds out whether the scope is this group's alone, and whether the
// store still knows what it knew.
type scopeWatch struct {
	*session
	known time.Time // when the store did, first; zero if it never did
}

// look asks the store once. Only errScopeTaken is an error; without an answer it
// tells nothing.
func (w *scopeWatch) look(ctx context.Context) (answered bool, err error) {
	ran := false
	m := idempotency.Message{Key: storage.Key{Scope: w.cfg.Once.Scope, ID: scopeID}}
	result, err := w.cfg.Once.Runner.Run(ctx, m, func(context.Context) ([]byte, error) {
		ran = true
		return []byte(w.cfg.Group), nil
	})
	switch {
	case err != nil || !result.Done():
		return false, nil //nolint:nilerr // it is asked again; records tell of an outage
	case len(result.Value) > 0 && string(result.Value) != w.cfg.Group:
		return true, fmt.Errorf("%w: scope %q is that of group %q, not %q: give Once.Scope another name; if the group was renamed, "+
			"have the old name forgotten: cdc-outbox-idempotency purge --scope %s --id %s --yes",
			errScopeTaken, w.cfg.Once.Scope, result.Value, w.cfg.Group, w.cfg.Once.Scope, scopeID)
	}
	if ran && !w.known.IsZero() && (w.cfg.retention == 0 || time.Since(w.known) < w.cfg.retention) {
		w.cfg.Logger.Error("the idempotency store has forgotten a key before its retention was over: "+
			"it was emptied, or failed over; messages that come again are handled again",
			"scope", w.cfg.Once.Scope, "remedy", "see what happened to the store, and its check; reset no offsets")
	}
	if ran || w.known.IsZero() {
		w.known = time.Now()
	}
	return true, nil
}

// watch looks until ctx ends, and ends Run if the scope is taken.
func (w *scopeWatch) watch(ctx context.Context, answered bool, fail context.CancelCauseFunc) {
	waits := backoff.Series{Range: w.scheduler.waits}
	for {
		wait := hook.Interval(ctx, scopeInterval)
		if !answered {
			wait = waits.Next()
		}
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
		var err error
		if answered, err = w.look(ctx); err != nil {
			fail(err)
			return
		}
	}
}
