package storetest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// reference is a correct store, unless given a fault: a map of records under a
// lock.
type reference struct {
	data  *data
	now   func() time.Time
	fault fault
}

type data struct {
	sync.Mutex
	records map[storage.Key]storage.Record
	fences  map[storage.Key]int64
	mixed   chan *storage.Claim
}

// fault alters what a reference store does; each part is optional.
type fault struct {
	// seen alters the record a call is about to change.
	seen func(v verb, r storage.Record, now time.Time) storage.Record
	// lease alters the lease of a call.
	lease func(r storage.Record, l storage.Lease) storage.Lease
	// kept alters the record after a change; false drops it.
	kept func(v verb, before, after storage.Record) (storage.Record, bool)
	// claim alters the answer to a claim.
	claim func(c *storage.Claim)
	// request alters the request.
	request func(r *storage.ClaimRequest)
	// failure likewise.
	failure func(f *storage.Failure)
	// takes bounds how long a call is on the way, there as well as back: no fault,
	// by itself.
	takes time.Duration
	// lags makes reading the clock and the rest two steps.
	lags bool
	// races makes reading and writing two steps.
	races bool
	// mixes swaps the answers of two claims made at the same time, like a pipeline
	// after losing count.
	mixes bool
	// amnesia forgets the fences of forgotten records, and does not look at the
	// clock for new ones.
	amnesia bool
}

// lag is the longest wait of a store with the fault: longer than the tolerance.
const lag = 15 * time.Millisecond

func newReference(now func() time.Time, f fault) *reference {
	return &reference{now: now, fault: f, data: &data{
		records: make(map[storage.Key]storage.Record),
		fences:  make(map[storage.Key]int64),
		mixed:   make(chan *storage.Claim),
	}}
}

// skewed returns another client, with the clock off.
func (s *reference) skewed(offset time.Duration) storage.Store {
	return &reference{data: s.data, fault: s.fault, now: func() time.Time { return s.now().Add(offset) }}
}

func (s *reference) travel() {
	if s.fault.takes > 0 {
		<-time.After(rand.N(s.fault.takes))
	}
}

type transition func(r storage.Record, now time.Time) (storage.Record, error)

// change does a transition and returns the record afterwards.
func (s *reference) change(v verb, key storage.Key, f transition) (storage.Record, error) {
	s.travel()
	defer s.travel() // without the lock
	now := s.now()
	if s.fault.lags {
		<-time.After(rand.N(lag))
	}
	s.data.Lock()
	defer s.data.Unlock()
	if !s.fault.lags {
		now = s.now()
	}
	before, ok := s.data.records[key]
	if !ok {
		before = storage.Record{Key: key, Fence: s.data.fences[key]}
	}
	before = before.At(now)
	if s.fault.amnesia && before.State == storage.Absent {
		before.Fence = 0
	}
	if s.fault.races {
		s.data.Unlock()
		<-time.After(time.Millisecond)
		s.data.Lock()
	}
	seen := before
	if s.fault.seen != nil {
		seen = s.fault.seen(v, seen, now)
	}
	after, err := f(seen, now)
	if err != nil {
		return after, err
	}
	if s.fault.amnesia && v == claim && after.Fence != before.Fence {
		after.Fence = before.Fence + 1
	}
	write := true
	if s.fault.kept != nil {
		after, write = s.fault.kept(v, before, after)
	}
	if write {
		s.data.records[key] = after
		s.data.fences[key] = max(s.data.fences[key], after.Fence)
	}
	return after, nil
}

func (s *reference) Claim(_ context.Context, key storage.Key, req storage.ClaimRequest) (storage.Claim, error) {
	if s.fault.request != nil {
		s.fault.request(&req)
	}
	var answer storage.Claim
	after, err := s.change(claim, key, func(r storage.Record, now time.Time) (storage.Record, error) {
		after, c, err := r.Claim(now, req)
		answer = c
		return after, err
	})
	if err != nil {
		return storage.Claim{}, err
	}
	if answer.Outcome == storage.Claimed {
		answer.Lease.Fence = after.Fence // perhaps changed by a fault
	}
	if s.fault.claim != nil {
		s.fault.claim(&answer)
	}
	if s.fault.mixes {
		s.data.mix(&answer)
		if answer.Outcome == storage.Claimed { // a client knows its request
			answer.Lease.Key, answer.Lease.Owner = key, req.Owner
		}
	}
	return answer, nil
}

// mix swaps the answer with another claim's: waiting for a swap, or coming soon.
func (d *data) mix(mine *storage.Claim) {
	own := *mine
	select {
	case d.mixed <- &own:
		*mine = *<-d.mixed
	case other := <-d.mixed:
		*mine = *other
		d.mixed <- &own
	case <-time.After(time.Millisecond):
	}
}

func (s *reference) Extend(_ context.Context, l storage.Lease, d time.Duration) error {
	_, err := s.change(extend, l.Key, func(r storage.Record, now time.Time) (storage.Record, error) {
		return r.Extend(now, s.lease(r, l), d)
	})
	return err
}

func (s *reference) Complete(_ context.Context, l storage.Lease, result []byte, retention time.Duration) error {
	_, err := s.change(complete, l.Key, func(r storage.Record, now time.Time) (storage.Record, error) {
		return r.Complete(now, s.lease(r, l), result, retention)
	})
	return err
}

func (s *reference) Fail(_ context.Context, l storage.Lease, f storage.Failure) error {
	if s.fault.failure != nil {
		s.fault.failure(&f)
	}
	_, err := s.change(fail, l.Key, func(r storage.Record, now time.Time) (storage.Record, error) {
		return r.Fail(now, s.lease(r, l), f)
	})
	return err
}

func (s *reference) lease(r storage.Record, l storage.Lease) storage.Lease {
	if s.fault.lease != nil {
		return s.fault.lease(r, l)
	}
	return l
}

func (s *reference) Inspect(_ context.Context, key storage.Key) (storage.Record, error) {
	s.travel()
	defer s.travel()
	s.data.Lock()
	defer s.data.Unlock()
	return s.data.records[key].At(s.now()), nil
}

func (s *reference) Release(_ context.Context, key storage.Key) (before storage.Record, err error) {
	_, err = s.change(release, key, func(r storage.Record, now time.Time) (storage.Record, error) {
		before = r
		return r.Release(now)
	})
	return before, err
}

func (s *reference) Purge(_ context.Context, f storage.Filter) (int, error) {
	key, purged := storage.Key{Scope: f.Scope, ID: f.ID}, 0
	_, err := s.change(purge, key, func(r storage.Record, now time.Time) (storage.Record, error) {
		if !f.Matches(r, now) {
			return r, nil
		}
		purged = 1
		return storage.Record{Key: key, Fence: r.Fence}, nil
	})
	return purged, err
}
