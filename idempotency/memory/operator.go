package memory

import (
	"context"
	"slices"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Release implements storage.Operator.
func (s *Store) Release(_ context.Context, key storage.Key) (storage.Record, error) {
	if err := key.Validate(); err != nil {
		return storage.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.options.Now()
	before := s.record(key).At(now)
	after, err := before.Release(now)
	if err == nil && after.State != storage.Absent {
		s.records.Add(key, after)
	}
	before.Result = slices.Clone(before.Result)
	return before, err
}

// Purge implements storage.Operator. Purge blocks other calls while it looks at
// all records.
func (s *Store) Purge(_ context.Context, f storage.Filter) (int, error) {
	if err := f.Validate(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, purged := s.options.Now(), 0
	if f.ID != "" {
		key := storage.Key{Scope: f.Scope, ID: f.ID}
		if r, ok := s.records.Peek(key); ok && f.Matches(r, now) {
			s.drop(key, r)
			purged++
		}
		return purged, nil
	}
	for _, key := range s.records.Keys() {
		if r, _ := s.records.Peek(key); f.Matches(r, now) {
			s.drop(key, r)
			purged++
		}
	}
	return purged, nil
}
