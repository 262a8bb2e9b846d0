package dynamodb

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// purgeConcurrency is how many records are forgotten at a time.
const purgeConcurrency = 16

// Release implements storage.Operator, by a read and a write.
func (s *Store) Release(ctx context.Context, key storage.Key) (storage.Record, error) {
	if err := key.Validate(); err != nil {
		return storage.Record{}, err
	}
	current, now, err := s.look(ctx, key)
	for err == nil {
		before := current.record.At(now.earliest)
		next, refusal := before.Release(now.earliest)
		if refusal != nil || before.State == storage.Absent {
			return before, refusal
		}
		var done bool
		if current, done, err = s.replace(ctx, current, next, now); done {
			return before, nil
		}
		if err == nil {
			now, err = s.now(ctx, key)
		}
	}
	return storage.Record{}, fmt.Errorf("release %s: %w", key, err)
}

// Purge implements storage.Operator. Without an ID, Purge reads the whole
// table, other scopes included. The rest of a forgotten record, the key and
// fence, is deleted by DynamoDB's time to live. A count with an error is of the
// keys forgotten before.
func (s *Store) Purge(ctx context.Context, f storage.Filter) (int, error) {
	if err := f.Validate(); err != nil {
		return 0, err
	}
	if f.ID != "" {
		found, _, err := s.look(ctx, storage.Key{Scope: f.Scope, ID: f.ID})
		if err != nil {
			return 0, fmt.Errorf("purge %s/%s: %w", f.Scope, f.ID, err)
		}
		return s.forgetAll(ctx, f, []item{found})
	}
	// The first look is for the time.
	if _, err := s.now(ctx, storage.Key{Scope: f.Scope, ID: "purge"}); err != nil {
		return 0, fmt.Errorf("purge %s: %w", f.Scope, err)
	}
	pages, purged := sdk.NewScanPaginator(s.client, s.scan(f)), 0
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return purged, fmt.Errorf("purge %s: %w", f.Scope, s.explain(err))
		}
		items, err := decodeAll(page.Items)
		if err != nil {
			return purged, fmt.Errorf("purge %s: %w", f.Scope, err)
		}
		n, err := s.forgetAll(ctx, f, items)
		purged += n
		if err != nil {
			return purged, err
		}
	}
	return purged, nil
}

// scan returns a request for possible matches of the filter, without the
// results.
func (s *Store) scan(f storage.Filter) *sdk.ScanInput {
	e := expression{}
	condition := fmt.Sprintf("begins_with(%s, %s) AND %s IN (", e.name(attrKey), e.value("scope", text(f.Scope+"/")), e.name(attrState))
	for i, state := range f.StatesOrDefault() {
		if i > 0 {
			condition += ", "
		}
		condition += e.value(fmt.Sprintf("state%d", i), text(state.String()))
	}
	return &sdk.ScanInput{
		TableName:                 &s.table,
		ConsistentRead:            aws.Bool(true),
		FilterExpression:          aws.String(condition + ")"),
		ProjectionExpression:      aws.String(e.list(attrKey, attrState, attrFence, attrVersion, attrUpdatedAt, attrExpiresAt)),
		ExpressionAttributeNames:  e.names,
		ExpressionAttributeValues: e.values,
	}
}

func decodeAll(found []attributes) ([]item, error) {
	items := make([]item, 0, len(found))
	for _, a := range found {
		key, err := keyOf(a)
		if err != nil {
			return nil, err
		}
		it, err := decode(key, a)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return items, nil
}

// forgetAll forgets the matching items, and returns how many. forgetAll starts
// purgeConcurrency goroutines at most and waits for them.
func (s *Store) forgetAll(ctx context.Context, f storage.Filter, items []item) (int, error) {
	var purged atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(purgeConcurrency)
	for _, it := range items {
		group.Go(func() error {
			forgotten, err := s.forget(ctx, f, it)
			if err != nil {
				return fmt.Errorf("purge %s: %w", it.record.Key, err)
			}
			if forgotten {
				purged.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return int(purged.Load()), err
}

// forget forgets the record if it still matches when written. The key's fence
// stays. If it were deleted, a client whose estimate of the time is too early
// might give the same fence again.
func (s *Store) forget(ctx context.Context, f storage.Filter, current item) (bool, error) {
	key := current.record.Key
	for {
		now, err := s.now(ctx, key)
		if err != nil {
			return false, err
		}
		if !f.Matches(aged(current.record, f), now.earliest) {
			return false, nil
		}
		tombstone := storage.Record{
			Key: key, Fence: current.record.Fence, UpdatedAt: now.earliest, ExpiresAt: now.earliest,
		}
		found, done, err := s.replace(ctx, current, tombstone, now)
		if done || err != nil {
			return done, err
		}
		current = found
	}
}

// aged returns the record as the filter is to judge it: without a limit of age,
// a record counts even if a client whose estimate of the time is later has just
// written it.
func aged(r storage.Record, f storage.Filter) storage.Record {
	if f.UnchangedFor == 0 {
		r.UpdatedAt = time.Time{}
	}
	return r
}
