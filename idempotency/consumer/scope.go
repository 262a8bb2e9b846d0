package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
)

// errScopeTaken ends Run: another group handles records under the same scope.
// Each would skip the other's messages.
var errScopeTaken = errors.New("another consumer group uses the same scope")

const (
	// scopeID is the id of the message for a group's announcement of the scope.
	// The handler's result is a scopeHolder.
	scopeID       = "cdc-outbox/group"
	scopeInterval = time.Minute // between two looks at the scope
)

// scopeHolder is the store's record of a scope: the group, and the time of the
// beginning, to tell an expired key from a lost key. The time is zero where not
// known.
type scopeHolder struct {
	group string
	since time.Time
}

func (h scopeHolder) String() string { return h.group + " " + h.since.UTC().Format(time.RFC3339) }

// parseScopeHolder takes a text without a time for a group's name.
func parseScopeHolder(text string) scopeHolder {
	if i := strings.LastIndexByte(text, ' '); i >= 0 {
		if since, err := time.Parse(time.RFC3339, text[i+1:]); err == nil {
			return scopeHolder{text[:i], since}
		}
	}
	return scopeHolder{group: text}
}

// scopeWatch finds out whether the scope is the group's alone, and whether the
// store has kept the records.
type scopeWatch struct {
	*session
	// since is when the scope was taken, as the store said last; zero if not. Our
	// process's writes are not known to be kept: with FailOpen, success does not
	// say so.
	since time.Time
}

// look asks the store once. Only errScopeTaken is an error; without an answer
// nothing is known.
func (w *scopeWatch) look(ctx context.Context) (answered bool, err error) {
	ran, claimed := false, false
	m := idempotency.Message{Key: storage.Key{Scope: w.cfg.Once.Scope, ID: scopeID}}
	result, err := w.cfg.Once.Runner.Run(ctx, m, func(ctx context.Context) ([]byte, error) {
		ran = true
		_, claimed = idempotency.FenceFrom(ctx) // not if the store is down, and the Runner fails open
		return []byte(scopeHolder{w.cfg.Group, time.Now()}.String()), nil
	})
	if err != nil || !result.Done() || ran && !claimed {
		return false, nil //nolint:nilerr // it is asked again; records tell of an outage
	}
	if ran {
		if w.mustBeKnown() {
			w.cfg.Logger.Error("the idempotency store has forgotten a key before its retention was over: "+
				"it was emptied, or failed over; messages that come again are handled again",
				"scope", w.cfg.Once.Scope, "remedy", "see what happened to the store, and its check; reset no offsets")
		}
		w.since = time.Time{}
		return true, nil
	}
	holder := parseScopeHolder(string(result.Value))
	if holder.group != "" && holder.group != w.cfg.Group {
		return true, fmt.Errorf("%w: scope %q is that of group %q, not %q: give Once.Scope another name; if the group was renamed, "+
			"have the old name forgotten: cdc-outbox-idempotency purge --scope %s --id %s --yes",
			errScopeTaken, w.cfg.Once.Scope, holder.group, w.cfg.Group, w.cfg.Once.Scope, scopeID)
	}
	w.since = holder.since
	return true, nil
}

// mustBeKnown tells whether the store was to keep the scope until now; a little
// less, as the clocks of processes differ.
func (w *scopeWatch) mustBeKnown() bool {
	return !w.since.IsZero() && time.Since(w.since) < w.cfg.retention-scopeInterval
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
