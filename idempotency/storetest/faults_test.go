package storetest

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// named is a fault the oracle must see.
type named struct {
	name string
	fault
	// exact faults show only to a fake clock.
	exact bool
}

// keep is a fault in the record left behind by a verb.
func keep(v verb, alter func(before, after *storage.Record)) fault {
	return fault{kept: func(got verb, before, after storage.Record) (storage.Record, bool) {
		if got == v {
			alter(&before, &after)
		}
		return after, true
	}}
}

// see is a fault in the record found by a verb.
func see(v verb, alter func(r *storage.Record, now time.Time)) fault {
	return fault{seen: func(got verb, r storage.Record, now time.Time) storage.Record {
		if got == v && r.State != storage.Absent {
			alter(&r, now)
		}
		return r
	}}
}

// takenOver tells whether a claim was granted to another owner than before.
func takenOver(before, after *storage.Record) bool {
	return before.State != storage.Absent && before.Fence != after.Fence
}

var faults = []named{
	{name: "anybody settles", fault: fault{lease: func(r storage.Record, l storage.Lease) storage.Lease {
		l.Owner, l.Fence = r.Owner, r.Fence
		return l
	}}},
	{name: "the owner is not compared", fault: fault{lease: func(r storage.Record, l storage.Lease) storage.Lease {
		l.Owner = r.Owner
		return l
	}}},
	{name: "the fence is not compared", fault: fault{lease: func(r storage.Record, l storage.Lease) storage.Lease {
		l.Fence = r.Fence
		return l
	}}},
	{name: "completed keys are claimed", fault: see(claim, func(r *storage.Record, _ time.Time) {
		if r.State == storage.Completed {
			r.State = storage.Retryable
		}
	})},
	{name: "failed keys are claimed", fault: see(claim, func(r *storage.Record, _ time.Time) {
		if r.State == storage.Failed {
			r.State = storage.Retryable
		}
	})},
	{name: "live leases are taken", fault: see(claim, func(r *storage.Record, _ time.Time) { r.LeaseUntil = time.Time{} })},
	{name: "leases never end", fault: see(claim, func(r *storage.Record, now time.Time) { r.LeaseUntil = now.Add(time.Millisecond) })},
	{name: "leases end late", exact: true, fault: see(claim, func(r *storage.Record, now time.Time) {
		if r.LeaseUntil.Equal(now) {
			r.LeaseUntil = now.Add(1)
		}
	})},
	{name: "leases are halved", fault: fault{request: func(r *storage.ClaimRequest) { r.Lease /= 2 }}},
	{name: "retries are not put off", fault: see(claim, func(r *storage.Record, _ time.Time) { r.RetryAt = time.Time{} })},
	{name: "waits are too long", fault: fault{claim: func(c *storage.Claim) { c.Wait *= 3 }}},
	{name: "waits are nothing", fault: fault{claim: func(c *storage.Claim) { c.Wait = 0 }}},
	{name: "fences stand still", fault: keep(claim, func(before, after *storage.Record) {
		if before.Fence > 0 {
			after.Fence = before.Fence
		}
	})},
	{name: "fences begin anew", fault: fault{amnesia: true}},
	{name: "a repeated claim has a new fence", fault: keep(claim, func(before, after *storage.Record) {
		if before.Owner == after.Owner {
			after.Fence++
		}
	})},
	{name: "a repeated claim counts", fault: see(claim, func(r *storage.Record, _ time.Time) {
		if r.State == storage.Processing {
			r.Attempts++
		}
	})},
	{name: "a repeated claim keeps the lease", fault: keep(claim, func(before, after *storage.Record) {
		if before.State == storage.Processing && before.Owner == after.Owner {
			after.LeaseUntil = before.LeaseUntil
		}
	})},
	{name: "attempts are not counted", fault: keep(claim, func(before, after *storage.Record) {
		if takenOver(before, after) {
			after.Attempts = before.Attempts
		}
	})},
	{name: "crashes are not counted", fault: see(claim, func(r *storage.Record, now time.Time) {
		if r.State == storage.Processing && !now.Before(r.LeaseUntil) {
			r.Attempts--
		}
	})},
	{name: "what vanished is not told from what failed", fault: keep(claim, func(before, after *storage.Record) {
		after.Vanished = before.Vanished
	})},
	{name: "what failed counts as vanished", fault: see(claim, func(r *storage.Record, _ time.Time) {
		if r.State == storage.Retryable {
			r.Vanished++
		}
	})},
	{name: "a repeated claim counts as vanished", fault: see(claim, func(r *storage.Record, _ time.Time) {
		if r.State == storage.Processing {
			r.Vanished++
		}
	})},
	{name: "unrun attempts count", fault: fault{failure: func(f *storage.Failure) { f.Unrun = false }}},
	{name: "excused attempts are not told from others", fault: fault{failure: func(f *storage.Failure) { f.Excused = false }}},
	{name: "excused attempts are taken back", fault: fault{failure: func(f *storage.Failure) {
		f.Excused, f.Unrun = false, f.Excused || f.Unrun
	}}},
	{name: "terminal failures are retried", fault: fault{failure: func(f *storage.Failure) { f.Terminal = false }}},
	{name: "payloads are not compared", fault: see(claim, func(r *storage.Record, _ time.Time) { r.Fingerprint = "" })},
	{name: "payloads of completed keys are not compared", fault: see(claim, func(r *storage.Record, _ time.Time) {
		if r.State == storage.Completed {
			r.Fingerprint = ""
		}
	})},
	{name: "methods of fingerprints are mixed up", fault: fault{request: func(r *storage.ClaimRequest) {
		if r.Fingerprint != "" {
			r.Fingerprint = "b1" + r.Fingerprint[2:]
		}
	}}},
	{name: "results are lost", fault: keep(complete, func(_, after *storage.Record) { after.Result = nil })},
	{name: "results are overwritten", fault: see(complete, func(r *storage.Record, _ time.Time) {
		if r.State == storage.Completed {
			r.State = storage.Processing
		}
	})},
	{name: "completions are lost", fault: fault{kept: func(v verb, _, after storage.Record) (storage.Record, bool) {
		return after, v != complete
	}}},
	{name: "completions are late", fault: see(complete, func(r *storage.Record, now time.Time) {
		if r.State == storage.Processing && !now.Before(r.LeaseUntil) {
			r.Owner = ""
		}
	})},
	{name: "completed keys are forgotten early", fault: keep(complete, func(_, after *storage.Record) {
		after.ExpiresAt = after.UpdatedAt.Add(after.ExpiresAt.Sub(after.UpdatedAt) / 3)
	})},
	{name: "retention begins at the claim", fault: keep(complete, func(before, after *storage.Record) { after.ExpiresAt = before.ExpiresAt })},
	{name: "extending does nothing", fault: fault{kept: func(v verb, _, after storage.Record) (storage.Record, bool) {
		return after, v != extend
	}}},
	{name: "failed leases are extended", fault: see(extend, func(r *storage.Record, _ time.Time) {
		if r.State == storage.Retryable {
			r.State = storage.Processing
		}
	})},
	{name: "reasons are lost", fault: keep(fail, func(_, after *storage.Record) { after.Reason = "" })},
	{name: "released leases stay valid", fault: keep(release, func(before, after *storage.Record) {
		if before.State == storage.Processing {
			after.State, after.Owner = before.State, before.Owner
		}
	})},
	{name: "releasing keeps what vanished", fault: keep(release, func(before, after *storage.Record) { after.Vanished = before.Vanished })},
	{name: "releasing keeps what was excused", fault: keep(release, func(before, after *storage.Record) { after.Excused = before.Excused })},
	{name: "releasing keeps the attempts", fault: keep(release, func(before, after *storage.Record) { after.Attempts = before.Attempts })},
	{name: "completed keys are released", fault: see(release, func(r *storage.Record, _ time.Time) {
		if r.State == storage.Completed {
			r.State = storage.Failed
		}
	})},
	{name: "purging does nothing", fault: fault{kept: func(v verb, before, after storage.Record) (storage.Record, bool) {
		return after, v != purge
	}}},
	{name: "too much is purged", fault: keep(purge, func(before, after *storage.Record) {
		*after = storage.Record{Key: before.Key, Fence: before.Fence}
	})},
}
