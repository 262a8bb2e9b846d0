package storetest

import (
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// span is a time known to lie between two.
type span struct{ lo, hi time.Duration }

func (s span) plus(d time.Duration) span { return span{s.lo + d, s.hi + d} }

// belief is a possible record of a key on the server. belief is comparable.
type belief struct {
	state       storage.State
	fingerprint storage.Fingerprint
	owner       string
	fence       int64 // the greatest ever, also of a forgotten record
	attempts    int
	vanished    int
	excused     int
	result      string
	reason      string
	lease       span // end of the lease
	due         span // end of the wait for the next attempt
	changed     span
	forgotten   span
	// last is before or at the moment of the last call.
	last time.Duration
}

// oracle implements the contract a second time.
type oracle struct {
	tolerance  time.Duration
	clockFirst bool // see Subject.ReadsClockFirst
}

// after returns the key's possible records after the call; none if the call's
// answer is impossible.
func (o oracle) after(b belief, c call) []belief {
	when := span{max(c.from, b.last), c.to}
	if when.lo > when.hi {
		return nil
	}
	b.last = when.lo
	if o.clockFirst {
		when.lo = c.from
	}
	if b.state == storage.Absent {
		return o.known(b, c, when)
	}
	var possible []belief
	if late := o.notBefore(when, b.forgotten); late.lo <= late.hi {
		for _, next := range o.known(belief{fence: b.fence, last: b.last}, c, late) {
			possible = append(possible, o.leftBehind(b, next, c, late))
		}
	}
	if early := o.before(when, b.forgotten); early.lo <= early.hi {
		possible = append(possible, o.known(b, c, early)...)
	}
	return possible
}

// leftBehind returns the record after a call that took b for forgotten: next,
// with an exception. If the store reads the clock first and the call changed
// nothing, b stays, because a later call may have read the clock earlier, before
// b was forgotten.
func (o oracle) leftBehind(b, next belief, c call, when span) belief {
	if !o.clockFirst || next.state != storage.Absent || c.answer.purged > 0 {
		return next
	}
	b.last = next.last
	b.forgotten.hi = min(b.forgotten.hi, when.hi+o.tolerance)
	return b
}

// notBefore narrows when to the part possibly at or after the limit.
func (o oracle) notBefore(when, limit span) span {
	return span{max(when.lo, limit.lo-o.tolerance), when.hi}
}

// before narrows when to the part possibly before the limit.
func (o oracle) before(when, limit span) span {
	return span{when.lo, min(when.hi, limit.hi+o.tolerance-1)}
}

// known is after, with the decision whether the record is forgotten.
func (o oracle) known(b belief, c call, when span) []belief {
	b.last = max(b.last, when.lo)
	switch c.verb {
	case claim:
		return o.claim(b, c, when)
	case extend, complete, fail:
		return o.settle(b, c, when)
	case inspect:
		if c.answer.err == nil && b.shownAs(c.answer.record) {
			return []belief{b}
		}
	case release:
		return o.release(b, c, when)
	case purge:
		return o.purge(b, c, when)
	}
	return nil
}

func (o oracle) claim(b belief, c call, when span) []belief {
	if conflict(b.fingerprint, c.request.Fingerprint) {
		return only(c.answer.err == storage.ErrMismatch, b) //nolint:errorlint // unwrapped by plain
	}
	if c.answer.err != nil {
		return nil
	}
	switch b.state {
	case storage.Absent:
		return granted(b, c, when)
	case storage.Completed:
		return only(refused(b, c, storage.Duplicate) && string(c.answer.claim.Result) == b.result, b)
	case storage.Failed:
		return only(refused(b, c, storage.GivenUp) && c.answer.claim.Reason == b.reason, b)
	case storage.Retryable:
		return o.afterWait(b, c, when, b.due, storage.NotDue)
	default:
		if b.owner == c.request.Owner {
			return again(b, c, when)
		}
		return o.afterWait(b, c, when, b.lease, storage.InProgress)
	}
}

// afterWait is a claim of a key nobody can have before end.
func (o oracle) afterWait(b belief, c call, when, end span, refusal storage.Outcome) []belief {
	if late := o.notBefore(when, end); late.lo <= late.hi && c.answer.claim.Outcome == storage.Claimed {
		return granted(b, c, late)
	}
	early := o.before(when, end)
	if early.lo > early.hi || !refused(b, c, refusal) {
		return nil
	}
	wait := c.answer.claim.Wait
	if wait <= 0 || wait < end.lo-early.hi-o.tolerance || wait > end.hi-early.lo+o.tolerance {
		return nil
	}
	if refusal == storage.NotDue && c.answer.claim.Reason != b.reason {
		return nil
	}
	return []belief{b}
}

func granted(b belief, c call, when span) []belief {
	a := c.answer.claim
	b.last = max(b.last, when.lo)
	if a.Lease.Fence <= b.fence || a.Attempts != b.attempts+1 || a.Reason != b.reason {
		return nil
	}
	if b.state == storage.Processing {
		b.vanished++
	}
	b.fence, b.attempts, b.owner = a.Lease.Fence, a.Attempts, c.request.Owner
	return again(b, c, when)
}

// again is a claim by the owner itself.
func again(b belief, c call, when span) []belief {
	a := c.answer.claim
	want := storage.Lease{Key: c.key, Owner: b.owner, Fence: b.fence}
	if a.Outcome != storage.Claimed || a.Lease != want || a.Attempts != b.attempts ||
		a.Vanished != b.vanished || a.Excused != b.excused {
		return nil
	}
	if c.request.Fingerprint != "" {
		b.fingerprint = c.request.Fingerprint
	}
	b.state = storage.Processing
	b.due, b.lease = span{}, when.plus(c.request.Lease)
	b.changed, b.forgotten = when, when.plus(c.request.Retention)
	return []belief{b}
}

func refused(b belief, c call, with storage.Outcome) bool {
	a := c.answer.claim
	return a.Outcome == with && a.Attempts == b.attempts && a.Lease == storage.Lease{}
}

func (o oracle) settle(b belief, c call, when span) []belief {
	holder := b.state != storage.Absent && b.owner == c.lease.Owner && b.fence == c.lease.Fence
	repeated := c.verb == complete && b.state == storage.Completed ||
		c.verb == fail && c.failure.Terminal && b.state == storage.Failed ||
		c.verb == fail && !c.failure.Terminal && b.state == storage.Retryable
	switch {
	case !holder || b.state != storage.Processing && !repeated:
		return only(c.answer.err == storage.ErrLeaseLost, b) //nolint:errorlint // unwrapped by plain
	case c.answer.err != nil:
		return nil
	case repeated:
		return []belief{b}
	}
	b.changed = when
	switch c.verb {
	case extend:
		b.lease = when.plus(c.duration)
		b.forgotten = span{max(b.forgotten.lo, b.lease.lo), max(b.forgotten.hi, b.lease.hi)}
		return []belief{b}
	case complete:
		b.state, b.result, b.reason = storage.Completed, c.result, ""
		b.forgotten = when.plus(c.retention)
	case fail:
		b.reason, b.forgotten = c.failure.Reason, when.plus(c.failure.Retention)
		b.state = storage.Failed
		if !c.failure.Terminal {
			b.state, b.due = storage.Retryable, when.plus(c.failure.RetryAfter)
		}
		switch {
		case c.failure.Unrun:
			b.attempts--
		case c.failure.Excused:
			b.excused++
		}
	}
	b.lease = span{}
	return []belief{b}
}

func (o oracle) release(b belief, c call, when span) []belief {
	if b.state == storage.Completed {
		return only(c.answer.err == storage.ErrCompleted, b) //nolint:errorlint // unwrapped by plain
	}
	if c.answer.err != nil || !b.shownAs(c.answer.record) {
		return nil
	}
	if b.state != storage.Absent {
		b.state, b.owner, b.attempts, b.vanished, b.excused = storage.Retryable, "", 0, 0, 0
		b.lease, b.due, b.changed = span{}, when, when
	}
	return []belief{b}
}

func (o oracle) purge(b belief, c call, when span) []belief {
	if c.answer.err != nil {
		return nil
	}
	if b.state == storage.Absent { // a forgotten record may still have been there to be deleted
		return only(c.answer.purged <= 1, b)
	}
	states := c.filter.States
	if len(states) == 0 {
		states = []storage.State{storage.Completed, storage.Failed}
	}
	old := b.changed.plus(c.filter.UnchangedFor)
	if c.answer.purged == 0 {
		early := o.before(when, old)
		return only(!slices.Contains(states, b.state) || early.lo <= early.hi, b)
	}
	late := o.notBefore(when, old)
	return only(c.answer.purged == 1 && slices.Contains(states, b.state) && late.lo <= late.hi,
		belief{fence: b.fence, last: max(b.last, late.lo)})
}

// shownAs reports whether a reader of b should see the record.
func (b belief) shownAs(r storage.Record) bool {
	if b.state == storage.Absent || r.State == storage.Absent {
		return b.state == r.State
	}
	return r.State == b.state && r.Fingerprint == b.fingerprint && r.Owner == b.owner &&
		r.Fence == b.fence && r.Attempts == b.attempts && r.Vanished == b.vanished && r.Excused == b.excused && string(r.Result) == b.result &&
		(r.Reason == b.reason || b.state == storage.Completed) // whether kept then is left open
}

func conflict(a, b storage.Fingerprint) bool {
	return a != "" && b != "" && a != b && a[:2] == b[:2] // the clients' versions have two letters
}

func only(ok bool, b belief) []belief {
	if !ok {
		return nil
	}
	return []belief{b}
}
