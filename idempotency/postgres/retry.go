package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
)

// retryLimit bounds how often one call is repeated on conflicts. Each conflict
// means that somebody else got on, so that more than a few are rare.
const retryLimit = 100

var retryWaits = backoff.Range{First: time.Millisecond, Longest: 64 * time.Millisecond}

// retry repeats f on the errors that mean: somebody else was faster, ask anew.
func retry(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if !conflicted(err) || try == retryLimit {
			return err
		}
		if cause := backoff.Sleep(ctx, retryWaits.Wait(try)); cause != nil {
			return errors.Join(cause, err)
		}
	}
}

// SQLSTATE codes.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
)

func conflicted(err error) bool {
	return errors.Is(err, pgx.ErrNoRows) || hasCode(err, serializationFailure) || hasCode(err, deadlockDetected)
}

func hasCode(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == code
}
