package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// Extend implements storage.Store.
func (s *Store) Extend(ctx context.Context, lease storage.Lease, d time.Duration) error {
	if err := storage.CheckLease(d); err != nil {
		return err
	}
	return s.settle(ctx, "extend", lease, storage.Processing, s.sql(lease.Key).extend, micros(d))
}

// Complete implements storage.Store.
func (s *Store) Complete(ctx context.Context, lease storage.Lease, result []byte, retention time.Duration) error {
	if err := storage.CheckCompletion(lease, result, s.options.MaxResultBytes, retention); err != nil {
		return err
	}
	return s.settle(ctx, "complete", lease, storage.Completed, s.sql(lease.Key).complete, result, micros(retention))
}

// Fail implements storage.Store.
func (s *Store) Fail(ctx context.Context, lease storage.Lease, f storage.Failure) error {
	if err := f.Validate(); err != nil {
		return err
	}
	next, unrun, excused, after := storage.Retryable, 0, 0, any(micros(f.RetryAfter))
	if f.Terminal {
		next, after = storage.Failed, nil
	}
	switch {
	case f.Unrun:
		unrun = 1
	case f.Excused:
		excused = 1
	}
	fail := func(reason string) error {
		return s.settle(ctx, "fail", lease, next, s.sql(lease.Key).fail,
			next.String(), reason, unrun, excused, after, micros(f.Retention))
	}
	err := fail(f.StoredReason())
	switch pgsql.State(err) {
	case pgerrcode.UntranslatableCharacter, pgerrcode.CharacterNotInRepertoire:
		// The database is not in UTF8, and has no form of some character.
		return fail(asciiOnly(f.StoredReason()))
	}
	return err
}

// asciiOnly has a question mark in place of each other character.
func asciiOnly(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return '?'
		}
		return r
	}, text)
}

// settle changes the record held by the lease. Without such a record, the call
// may be a repetition after a lost answer; the record, read anew, tells.
func (s *Store) settle(ctx context.Context, verb string, lease storage.Lease, next storage.State, sql string, args ...any) error {
	if err := lease.Validate(); err != nil {
		return err
	}
	args = append([]any{lease.Key.Scope, lease.Key.ID, lease.Owner, lease.Fence}, args...)
	var tag pgconn.CommandTag
	err := retry(ctx, func() (err error) {
		tag, err = s.db.Exec(ctx, sql, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, lease.Key, explain(err))
	}
	if tag.RowsAffected() == 1 {
		return nil
	}
	if next != storage.Processing {
		record, err := s.Inspect(ctx, lease.Key)
		if err != nil {
			return fmt.Errorf("%s %s: %w", verb, lease.Key, err)
		}
		if record.State == next && record.HeldBy(lease) {
			return nil
		}
	}
	return fmt.Errorf("%s %s: %w", verb, lease.Key, storage.ErrLeaseLost)
}

// micros returns d in microseconds, rounded up: a lease of 1 ns must not become
// 0.
func micros(d time.Duration) int64 {
	us := d.Microseconds()
	if time.Duration(us)*time.Microsecond < d {
		us++
	}
	return us
}
