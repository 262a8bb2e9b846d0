package memory

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// The defaults of Options.
const (
	defaultRecords        = 100_000
	defaultMaxResultBytes = 4096
)

// evictionTries bounds how many records a claim looks at to make room.
const evictionTries = 16

// Options are all optional.
type Options struct {
	// Records bounds how many are kept; 100,000 if 0. Beyond that, the least
	// recently used record is forgotten, unless its lease is live; live leases
	// are bounded by the number of messages in work.
	Records int
	// MaxResultBytes bounds a result; 4 KiB if 0.
	MaxResultBytes int
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// Store is a storage.Store and Operator in the memory of a single process. It
// does not survive a restart and forgets the least recently used keys: a later
// duplicate runs again. The methods do not block and ignore the context. Make a
// Store with New.
type Store struct {
	options Options

	mu      sync.Mutex
	records *simplelru.LRU[storage.Key, storage.Record]
	// floor is the greatest fence of a record dropped.
	floor int64
}

var (
	_ storage.Store    = (*Store)(nil)
	_ storage.Operator = (*Store)(nil)
)

// New returns an empty store.
func New(o Options) *Store {
	if o.Records <= 0 {
		o.Records = defaultRecords
	}
	if o.MaxResultBytes <= 0 {
		o.MaxResultBytes = defaultMaxResultBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	// The list's own bound would evict live leases.
	records, err := simplelru.NewLRU[storage.Key, storage.Record](math.MaxInt, nil)
	if err != nil {
		panic(err) //nolint:forbidigo // only a size below 1 is refused
	}
	return &Store{options: o, records: records}
}

// Claim implements storage.Store.
func (s *Store) Claim(_ context.Context, key storage.Key, req storage.ClaimRequest) (storage.Claim, error) {
	if err := key.Validate(); err != nil {
		return storage.Claim{}, err
	}
	if err := req.Validate(); err != nil {
		return storage.Claim{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.options.Now()
	record, claim, err := s.record(key).Claim(now, req)
	if err == nil && claim.Outcome == storage.Claimed {
		s.records.Add(key, record)
		s.evict(now)
	}
	return claim, err
}

// Extend implements storage.Store.
func (s *Store) Extend(_ context.Context, lease storage.Lease, d time.Duration) error {
	if err := storage.CheckLease(d); err != nil {
		return err
	}
	return s.change(lease, func(r storage.Record, now time.Time) (storage.Record, error) {
		return r.Extend(now, lease, d)
	})
}

// Complete implements storage.Store.
func (s *Store) Complete(_ context.Context, lease storage.Lease, result []byte, retention time.Duration) error {
	if err := storage.CheckCompletion(lease, result, s.options.MaxResultBytes, retention); err != nil {
		return err
	}
	return s.change(lease, func(r storage.Record, now time.Time) (storage.Record, error) {
		return r.Complete(now, lease, result, retention)
	})
}

// Fail implements storage.Store.
func (s *Store) Fail(_ context.Context, lease storage.Lease, f storage.Failure) error {
	if err := f.Validate(); err != nil {
		return err
	}
	return s.change(lease, func(r storage.Record, now time.Time) (storage.Record, error) {
		return r.Fail(now, lease, f)
	})
}

// Inspect implements storage.Store.
func (s *Store) Inspect(_ context.Context, key storage.Key) (storage.Record, error) {
	if err := key.Validate(); err != nil {
		return storage.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record(key).At(s.options.Now())
	r.Result = slices.Clone(r.Result)
	return r, nil
}

// Len returns how many records are kept, forgotten ones not touched since
// included.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records.Len()
}

// change applies a transition of a lease's holder.
func (s *Store) change(lease storage.Lease, transition func(storage.Record, time.Time) (storage.Record, error)) error {
	if err := lease.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	record, err := transition(s.record(lease.Key), s.options.Now())
	if err != nil {
		return err
	}
	s.records.Add(lease.Key, record)
	return nil
}

// record returns the key's record, or an absent record with the next fence beyond
// all dropped.
func (s *Store) record(key storage.Key) storage.Record {
	if r, ok := s.records.Get(key); ok {
		return r
	}
	return storage.Record{Key: key, Fence: s.floor}
}

// evict drops the least recently used records beyond the bound. A record with a
// live lease is put off instead; if there are too many of them, the bound gives
// way until the next claim.
func (s *Store) evict(now time.Time) {
	for range evictionTries {
		if s.records.Len() <= s.options.Records {
			return
		}
		key, r, _ := s.records.GetOldest()
		if r.State == storage.Processing && now.Before(r.LeaseUntil) {
			s.records.Get(key) // now the most recently used
			continue
		}
		s.drop(key, r)
	}
}

func (s *Store) drop(key storage.Key, r storage.Record) {
	s.floor = max(s.floor, r.Fence)
	s.records.Remove(key)
}
