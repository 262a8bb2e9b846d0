package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// retryLimit bounds a call's repetitions on conflicts. Each conflict is a
// success of somebody else, so long series are rare.
const retryLimit = 100

var retryWaits = backoff.Range{First: time.Millisecond, Longest: 64 * time.Millisecond}

// retry repeats f on errors that mean: somebody else was faster, ask anew.
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

func conflicted(err error) bool {
	code := pgsql.State(err)
	return errors.Is(err, pgx.ErrNoRows) || code == pgerrcode.SerializationFailure || code == pgerrcode.DeadlockDetected
}
