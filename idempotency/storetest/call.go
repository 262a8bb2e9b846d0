package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// verb is a call's request.
type verb uint8

const (
	claim verb = iota + 1
	extend
	complete
	fail
	inspect
	release
	purge
)

// call is a single call of a store about one key, and the answer.
type call struct {
	verb   verb
	client int
	key    storage.Key
	// from and to enclose the moment of the execution at the server, counted from
	// the start of the history.
	from, to time.Duration

	request   storage.ClaimRequest
	lease     storage.Lease
	duration  time.Duration // of extend's lease
	result    string
	retention time.Duration // of complete
	failure   storage.Failure
	filter    storage.Filter

	answer answer
}

// answer is a call's answer; the fields in use depend on the verb.
type answer struct {
	err    error // of idempotency, unwrapped; nil for none
	claim  storage.Claim
	record storage.Record
	purged int
}

// answers are the errors a history may contain.
var answers = []error{storage.ErrMismatch, storage.ErrLeaseLost, storage.ErrCompleted}

// plain returns the contract's error wrapped by err, if any.
func plain(err error) (known bool, answer error) {
	for _, known := range answers {
		if errors.Is(err, known) {
			return true, known
		}
	}
	return err == nil, err
}

// String describes the call in a line.
func (c call) String() string {
	var asks, gets string
	switch c.verb {
	case claim:
		asks = fmt.Sprintf("claim owner=%s fingerprint=%q lease=%s retention=%s",
			c.request.Owner, c.request.Fingerprint, c.request.Lease, c.request.Retention)
		a := c.answer.claim
		gets = fmt.Sprintf("%s attempts=%d", a.Outcome, a.Attempts)
		switch a.Outcome {
		case storage.Claimed:
			gets += fmt.Sprintf(" vanished=%d excused=%d owner=%s fence=%d", a.Vanished, a.Excused, a.Lease.Owner, a.Lease.Fence)
		case storage.Duplicate:
			gets += fmt.Sprintf(" result=%q", a.Result)
		default:
			gets += fmt.Sprintf(" wait=%s", a.Wait)
		}
		if a.Reason != "" {
			gets += fmt.Sprintf(" reason=%q", a.Reason)
		}
	case extend:
		asks = fmt.Sprintf("extend %s by %s", holder(c.lease), c.duration)
	case complete:
		asks = fmt.Sprintf("complete %s result=%q retention=%s", holder(c.lease), c.result, c.retention)
	case fail:
		f := c.failure
		asks = fmt.Sprintf("fail %s terminal=%t excused=%t unrun=%t after=%s retention=%s reason=%q",
			holder(c.lease), f.Terminal, f.Excused, f.Unrun, f.RetryAfter, f.Retention, f.Reason)
	case inspect:
		asks, gets = "inspect", describe(c.answer.record)
	case release:
		asks, gets = "release", "was "+describe(c.answer.record)
	case purge:
		asks = fmt.Sprintf("purge states=%v unchanged for %s", c.filter.States, c.filter.UnchangedFor)
		gets = fmt.Sprintf("%d", c.answer.purged)
	}
	if c.answer.err != nil {
		gets = c.answer.err.Error()
	}
	when := c.from.String()
	if c.to != c.from {
		when += "–" + c.to.String()
	}
	return fmt.Sprintf("%s  client %d: %s → %s", when, c.client, asks, strings.TrimSpace(gets))
}

func holder(l storage.Lease) string { return fmt.Sprintf("owner=%s fence=%d", l.Owner, l.Fence) }

func describe(r storage.Record) string {
	return fmt.Sprintf("%s owner=%s fence=%d attempts=%d vanished=%d excused=%d fingerprint=%q result=%q reason=%q",
		r.State, r.Owner, r.Fence, r.Attempts, r.Vanished, r.Excused, r.Fingerprint, r.Result, r.Reason)
}
