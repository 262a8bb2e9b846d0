package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
)

// purgeBatch is how many rows Purge deletes in one statement.
const purgeBatch = 1000

func newScopeStatement(table string) string {
	return strings.ReplaceAll(purgeScopeSQL, "{table}", table)
}

// Inspect implements idempotency.Store.
func (s *Store) Inspect(ctx context.Context, key idempotency.Key) (idempotency.Record, error) {
	if err := key.Validate(); err != nil {
		return idempotency.Record{}, err
	}
	var record idempotency.Record
	err := retry(ctx, func() (err error) {
		record, err = scanRecord(key, s.db.QueryRow(ctx, s.sql(key).inspect, key.Scope, key.ID))
		return err
	})
	if err != nil {
		return idempotency.Record{}, fmt.Errorf("inspect %s: %w", key, explain(err))
	}
	return record, nil
}

// Release implements idempotency.Operator. It waits for a change of the record
// that is not committed yet: a Transactional's completion, not its handler.
func (s *Store) Release(ctx context.Context, key idempotency.Key) (idempotency.Record, error) {
	if err := key.Validate(); err != nil {
		return idempotency.Record{}, err
	}
	var before idempotency.Record
	err := retry(ctx, func() error {
		return pgx.BeginTxFunc(ctx, s.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
			before, err = scanRecord(key, tx.QueryRow(ctx, s.sql(key).lock, key.Scope, key.ID))
			if err != nil || before.State == idempotency.Absent {
				return err
			}
			if before.State == idempotency.Completed {
				return idempotency.ErrCompleted
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

// Purge implements idempotency.Operator. Of a whole scope it passes over records
// that are being changed at that moment. When it fails it returns how many were
// forgotten by then.
func (s *Store) Purge(ctx context.Context, f idempotency.Filter) (int, error) {
	if err := f.Validate(); err != nil {
		return 0, err
	}
	var states []string
	for _, state := range f.StatesOrDefault() {
		states = append(states, state.String())
	}
	if f.ID != "" {
		return s.purgeOne(ctx, idempotency.Key{Scope: f.Scope, ID: f.ID}, states, f.UnchangedFor)
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

func (s *Store) purgeOne(ctx context.Context, key idempotency.Key, states []string, unchangedFor time.Duration) (int, error) {
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

// stateOf is the inverse of idempotency.State.String.
var stateOf = map[string]idempotency.State{
	idempotency.Processing.String(): idempotency.Processing,
	idempotency.Completed.String():  idempotency.Completed,
	idempotency.Retryable.String():  idempotency.Retryable,
	idempotency.Failed.String():     idempotency.Failed,
}

// scanRecord reads the row of recordColumns, of which there may be none.
func scanRecord(key idempotency.Key, row pgx.Row) (idempotency.Record, error) {
	r := idempotency.Record{Key: key}
	var (
		state, fingerprint string
		until              *time.Time
		expired            bool
	)
	err := row.Scan(&state, &fingerprint, &r.Owner, &r.Fence, &r.Attempts, &r.Vanished, &r.Excused, &until,
		&r.Result, &r.Reason, &r.UpdatedAt, &r.ExpiresAt, &expired)
	if errors.Is(err, pgx.ErrNoRows) {
		return idempotency.Record{Key: key}, nil
	}
	if err != nil {
		return idempotency.Record{}, err
	}
	if expired {
		return idempotency.Record{Key: key, Fence: r.Fence}, nil
	}
	r.State, r.Fingerprint = stateOf[state], idempotency.Fingerprint(fingerprint)
	switch {
	case until == nil:
	case r.State == idempotency.Processing:
		r.LeaseUntil = *until
	case r.State == idempotency.Retryable:
		r.RetryAt = *until
	}
	return r, nil
}
