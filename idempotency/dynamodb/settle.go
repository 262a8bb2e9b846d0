package dynamodb

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// farAway is beyond every lease.
var farAway = time.Unix(1<<40, 0)

// The attributes changed by settling, beside version.
var (
	onExtend   = []string{attrLeaseUntil, attrUpdatedAt}
	onComplete = []string{attrState, attrLeaseUntil, attrRetryAt, attrResult, attrReason, attrUpdatedAt, attrExpiresAt, attrTTL}
	onFail     = onComplete
)

// settlement is a transition by the holder of a lease.
type settlement struct {
	lease storage.Lease
	apply func(r storage.Record, now instant) (storage.Record, error)
	// changes are the attributes that the transition may change without reading
	// the record, if the lease holds it; none if it must be read.
	changes []string
}

// Extend implements storage.Store.
func (s *Store) Extend(ctx context.Context, lease storage.Lease, d time.Duration) error {
	if err := storage.CheckLease(d); err != nil {
		return err
	}
	return s.settle(ctx, "extend", settlement{
		lease: lease, changes: onExtend,
		apply: func(r storage.Record, now instant) (storage.Record, error) {
			return r.Extend(now.earliest, lease, s.pad(d, now))
		},
	})
}

// Complete implements storage.Store. A result of more than maxResultBytes is
// refused before anything is sent.
func (s *Store) Complete(ctx context.Context, lease storage.Lease, result []byte, retention time.Duration) error {
	if err := storage.CheckCompletion(lease, result, maxResultBytes, retention); err != nil {
		return err
	}
	return s.settle(ctx, "complete", settlement{
		lease: lease, changes: onComplete,
		apply: func(r storage.Record, now instant) (storage.Record, error) {
			return r.Complete(now.earliest, lease, result, s.pad(retention, now))
		},
	})
}

// Fail implements storage.Store. An excused or unrun failure costs another
// read.
func (s *Store) Fail(ctx context.Context, lease storage.Lease, f storage.Failure) error {
	if err := f.Validate(); err != nil {
		return err
	}
	how := settlement{
		lease: lease, changes: onFail,
		apply: func(r storage.Record, now instant) (storage.Record, error) {
			padded := f
			padded.Retention = s.pad(f.Retention, now)
			if f.RetryAfter > 0 {
				padded.RetryAfter = s.pad(f.RetryAfter, now)
			}
			return r.Fail(now.earliest, lease, padded)
		},
	}
	if f.Excused || f.Unrun {
		how.changes = nil // the count must be known
	}
	return s.settle(ctx, "fail", how)
}

// settle applies a settlement: first unseen, on the condition that the lease
// holds the record; if that fails, to the record returned.
func (s *Store) settle(ctx context.Context, verb string, how settlement) error {
	key := how.lease.Key
	if err := how.lease.Validate(); err != nil {
		return err
	}
	current, done, err := s.settleUnseen(ctx, how)
	for err == nil && !done {
		var now instant
		if now, err = s.now(ctx, key); err != nil {
			break
		}
		next, lost := how.apply(current.record, now)
		if lost != nil || current.record.State != storage.Processing {
			return lost // or a repetition
		}
		current, done, err = s.replace(ctx, current, next, now)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, key, err)
	}
	return nil
}

// settleUnseen applies a settlement to a record not read, if the record is as
// the holder expects. If not, nothing changes and the record is returned.
func (s *Store) settleUnseen(ctx context.Context, how settlement) (found item, done bool, err error) {
	key := how.lease.Key
	if how.changes == nil {
		found, _, err = s.look(ctx, key)
		return found, false, err
	}
	now, err := s.now(ctx, key)
	if err != nil {
		return item{}, false, err
	}
	supposed := storage.Record{
		Key: key, State: storage.Processing,
		Owner: how.lease.Owner, Fence: how.lease.Fence, ExpiresAt: farAway,
	}
	next, err := how.apply(supposed, now)
	if err != nil {
		return item{}, false, err
	}
	return s.update(ctx, next, how.changes, now)
}
