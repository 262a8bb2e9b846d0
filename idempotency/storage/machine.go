package storage

import (
	"crypto/rand"
	"fmt"
	"slices"
	"time"
)

// The state machine of a key, as functions of a Record and the server's time:
// no I/O, no clock, no lock. A store with compare-and-set of whole records
// reads a record, applies a transition and writes the outcome; stores computing
// on the server (Lua, SQL) say the same in their language, and the suite
// storetest holds them to it.
//
// Arguments are expected to be valid. A transition returning an error returns
// the record as it was at now.

// NewOwner returns a token no other claim has: 128 bits of randomness or more,
// as text.
func NewOwner() string { return rand.Text() }

// At returns the record's state at now: Absent past ExpiresAt, with Key and
// Fence only.
func (r Record) At(now time.Time) Record {
	if r.State == Absent || !now.Before(r.ExpiresAt) {
		return Record{Key: r.Key, Fence: r.Fence}
	}
	return r
}

// HeldBy tells whether the lease is the record's last claim's.
func (r Record) HeldBy(lease Lease) bool {
	return r.Owner == lease.Owner && r.Fence == lease.Fence && r.Key == lease.Key
}

// Claim is the transition of Store.Claim. The record is to be written if, and
// only if, the outcome is Claimed.
func (r Record) Claim(now time.Time, req ClaimRequest) (Record, Claim, error) {
	r = r.At(now)
	if r.Fingerprint.Conflicts(req.Fingerprint) {
		return r, Claim{}, fmt.Errorf("claim %q: %w", r.Key, ErrMismatch)
	}
	answer := Claim{Attempts: r.Attempts, Reason: r.Reason, Layer: LayerStore}
	switch {
	case r.State == Completed:
		answer.Outcome, answer.Result, answer.Reason = Duplicate, slices.Clone(r.Result), ""
		return r, answer, nil
	case r.State == Failed:
		answer.Outcome = GivenUp
		return r, answer, nil
	case r.State == Retryable && now.Before(r.RetryAt):
		answer.Outcome, answer.Wait = NotDue, r.RetryAt.Sub(now)
		return r, answer, nil
	case r.State == Processing && r.Owner == req.Owner:
		// The first answer was lost: neither a new attempt nor a new fence.
	case r.State == Processing && now.Before(r.LeaseUntil):
		answer.Outcome, answer.Wait = InProgress, r.LeaseUntil.Sub(now)
		return r, answer, nil
	default:
		if r.State == Processing {
			r.Vanished++
		}
		r.Attempts++
		r.Fence = max(r.Fence+1, now.UnixMicro())
		r.Owner = req.Owner
	}
	if req.Fingerprint != "" {
		r.Fingerprint = req.Fingerprint
	}
	r.State, r.RetryAt = Processing, time.Time{}
	r.LeaseUntil, r.ExpiresAt, r.UpdatedAt = now.Add(req.Lease), now.Add(req.Retention), now
	answer.Outcome, answer.Attempts = Claimed, r.Attempts
	answer.Vanished, answer.Excused = r.Vanished, r.Excused
	answer.Lease = Lease{Key: r.Key, Owner: r.Owner, Fence: r.Fence}
	return r, answer, nil
}

// Extend is the transition of Store.Extend.
func (r Record) Extend(now time.Time, lease Lease, d time.Duration) (Record, error) {
	r = r.At(now)
	if r.State != Processing || !r.HeldBy(lease) {
		return r, fmt.Errorf("extend %q: %w", lease.Key, ErrLeaseLost)
	}
	r.LeaseUntil, r.UpdatedAt = now.Add(d), now
	if r.ExpiresAt.Before(r.LeaseUntil) {
		r.ExpiresAt = r.LeaseUntil
	}
	return r, nil
}

// Complete is the transition of Store.Complete. The record takes a copy of the
// result. Whether the result is too large is the store's to say.
func (r Record) Complete(now time.Time, lease Lease, result []byte, retention time.Duration) (Record, error) {
	r = r.At(now)
	switch {
	case !r.HeldBy(lease) || r.State != Processing && r.State != Completed:
		return r, fmt.Errorf("complete %q: %w", lease.Key, ErrLeaseLost)
	case r.State == Completed: // repeated
		return r, nil
	}
	r = r.settled(now, Completed, retention)
	r.Result, r.Reason = slices.Clone(result), ""
	return r, nil
}

// Fail is the transition of Store.Fail.
func (r Record) Fail(now time.Time, lease Lease, f Failure) (Record, error) {
	r = r.At(now)
	next := Retryable
	if f.Terminal {
		next = Failed
	}
	switch {
	case !r.HeldBy(lease) || r.State != Processing && r.State != next:
		return r, fmt.Errorf("fail %q: %w", lease.Key, ErrLeaseLost)
	case r.State == next: // repeated
		return r, nil
	}
	r = r.settled(now, next, f.Retention)
	r.Reason = f.StoredReason()
	if next == Retryable {
		r.RetryAt = now.Add(f.RetryAfter)
	}
	switch {
	case f.Unrun:
		r.Attempts--
	case f.Excused:
		r.Excused++
	}
	return r, nil
}

// Release is the transition of Operator.Release.
func (r Record) Release(now time.Time) (Record, error) {
	r = r.At(now)
	switch r.State {
	case Absent:
		return r, nil
	case Completed:
		return r, fmt.Errorf("release %q: %w", r.Key, ErrCompleted)
	}
	r.State, r.Owner, r.Attempts, r.Vanished, r.Excused = Retryable, "", 0, 0, 0
	r.LeaseUntil, r.RetryAt, r.UpdatedAt = time.Time{}, now, now
	return r, nil
}

func (r Record) settled(now time.Time, s State, retention time.Duration) Record {
	r.State, r.LeaseUntil, r.RetryAt = s, time.Time{}, time.Time{}
	r.UpdatedAt, r.ExpiresAt = now, now.Add(retention)
	return r
}

// Matches tells whether Purge is to forget the record, as it is at now.
func (f Filter) Matches(r Record, now time.Time) bool {
	r = r.At(now)
	return r.State != Absent &&
		r.Key.Scope == f.Scope &&
		(f.ID == "" || r.Key.ID == f.ID) &&
		slices.Contains(f.StatesOrDefault(), r.State) &&
		!r.UpdatedAt.Add(f.UnchangedFor).After(now)
}
