package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// purgeBatch is how many rows Purge deletes in a single statement.
const purgeBatch = 1000

func newScopeStatement(table string) string {
	return strings.ReplaceAll(purgeScopeSQL, "{table}", table)
}

// Inspect implements storage.Store.
func (s *Store) Inspect(ctx context.Context, key storage.Key) (storage.Record, error) {
	if err := key.Validate(); err != nil {
		return storage.Record{}, err
	}
	var record storage.Record
	err := retry(ctx, func() (err error) {
		record, err = scanRecord(key, s.db.QueryRow(ctx, s.sql(key).inspect, key.Scope, key.ID))
		return err
	})
	if err != nil {
		return storage.Record{}, fmt.Errorf("inspect %s: %w", key, explain(err))
	}
	return record, nil
}

// Release implements storage.Operator. Release waits for a change of the record
// not committed yet: a Transactional's completion, not the handler.
func (s *Store) Release(ctx context.Context, key storage.Key) (storage.Record, error) {
	if err := key.Validate(); err != nil {
		return storage.Record{}, err
	}
	var before storage.Record
	err := retry(ctx, func() error {
		return pgx.BeginTxFunc(ctx, s.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
			before, err = scanRecord(key, tx.QueryRow(ctx, s.sql(key).lock, key.Scope, key.ID))
			if err != nil || before.State == storage.Absent {
				return err
			}
			if before.State == storage.Completed {
				return storage.ErrCompleted
			}
			_, err = tx.Exec(ctx, s.sql(key).release, key.Scope, key.ID)
			return err
		})
	})
	if err != nil {
		return before, fmt.Errorf("release %s: %w", key, explain(err))
	}
	return before, nil
}

// Purge implements storage.Operator. In a whole scope, Purge passes over
// records being changed. With an error, the count is of the records forgotten
// before.
func (s *Store) Purge(ctx context.Context, f storage.Filter) (int, error) {
	if err := f.Validate(); err != nil {
		return 0, err
	}
	var states []string
	for _, state := range f.StatesOrDefault() {
		states = append(states, state.String())
	}
	if f.ID != "" {
		return s.purgeOne(ctx, storage.Key{Scope: f.Scope, ID: f.ID}, states, f.UnchangedFor)
	}
	purged, last := 0, new(string)
	for last != nil {
		var n int
		after := *last
		err := retry(ctx, func() error {
			return s.db.QueryRow(ctx, s.scope, f.Scope, after, states, micros(f.UnchangedFor), purgeBatch).Scan(&n, &last)
		})
		if err != nil {
			return purged, fmt.Errorf("purge scope %s: %w", f.Scope, explain(err))
		}
		purged += n
	}
	return purged, nil
}

func (s *Store) purgeOne(ctx context.Context, key storage.Key, states []string, unchangedFor time.Duration) (int, error) {
	var n int64
	err := retry(ctx, func() error {
		tag, err := s.db.Exec(ctx, s.sql(key).purge, key.Scope, key.ID, states, micros(unchangedFor))
		n = tag.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("purge %s: %w", key, explain(err))
	}
	return int(n), nil
}

// scanRecord reads the row of recordColumns, if any.
func scanRecord(key storage.Key, row pgx.Row) (storage.Record, error) {
	r := storage.Record{Key: key}
	var (
		state, fingerprint string
		until              *time.Time
		expired            bool
	)
	err := row.Scan(&state, &fingerprint, &r.Owner, &r.Fence, &r.Attempts, &r.Vanished, &r.Excused, &until,
		&r.Result, &r.Reason, &r.UpdatedAt, &r.ExpiresAt, &expired)
	if errors.Is(err, pgx.ErrNoRows) {
		return storage.Record{Key: key}, nil
	}
	if err != nil {
		return storage.Record{}, err
	}
	if expired {
		return storage.Record{Key: key, Fence: r.Fence}, nil
	}
	if err := r.State.UnmarshalText([]byte(state)); err != nil {
		return storage.Record{}, fmt.Errorf("read the row, which something else may have written: %w", err)
	}
	r.Fingerprint = storage.Fingerprint(fingerprint)
	switch {
	case until == nil:
	case r.State == storage.Processing:
		r.LeaseUntil = *until
	case r.State == storage.Retryable:
		r.RetryAt = *until
	}
	return r, nil
}
