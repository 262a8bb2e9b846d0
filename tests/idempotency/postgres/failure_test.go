package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

func TestFailedAttempts(t *testing.T) {
	broken := errors.New("the handler fails")
	var letters []idempotency.DeadLetter
	var r runner
	r = newRunner(t, idempotency.Options{
		MaxAttempts: 3, FirstRetry: time.Minute, LastRetry: time.Hour,
		DeadLetter: func(_ context.Context, l idempotency.DeadLetter) error {
			// The key is not given up before the dead letter's return.
			r.wantState(t, l.Message.Key.ID, storage.Processing, min(3+len(letters), 4))
			letters = append(letters, l)
			if len(letters) <= 2 {
				return errors.New("the dead-letter topic is down")
			}
			return nil
		},
	})
	fails := func(ctx context.Context) ([]byte, error) {
		if _, err := effect("a")(ctx); err != nil {
			return nil, err
		}
		return nil, broken
	}
	due := func() { exec(t, r.pool, `UPDATE idempotency_keys SET blocked_until = clock_timestamp()`) }

	result, err := r.want(t, message("a"), fails, idempotency.Retry).parts()
	if !errors.Is(err, broken) || result.Attempt != 1 || result.Wait < 30*time.Second || result.Wait > time.Minute {
		t.Errorf("first attempt: %+v, %v", result, err)
	}
	result, err = r.want(t, message("a"), never(t), idempotency.NotDue).parts()
	if err == nil || result.Attempt != 0 || result.Wait <= 0 {
		t.Errorf("not due: %+v, %v", result, err)
	}
	due()
	if result, _ = r.want(t, message("a"), fails, idempotency.Retry).parts(); result.Attempt != 2 || result.Wait < time.Minute || result.Wait > 2*time.Minute {
		t.Errorf("second attempt: %+v", result)
	}
	due()
	if _, err = r.want(t, message("a"), fails, idempotency.Retry).parts(); !strings.Contains(fmt.Sprint(err), "topic is down") {
		t.Errorf("third attempt: %v, want the dead letter's error", err)
	}
	due()
	r.want(t, message("a"), never(t), idempotency.Retry) // the dead letters are still down
	due()
	if result, _ = r.want(t, message("a"), never(t), idempotency.DeadLettered).parts(); result.Attempt != 0 || !strings.Contains(result.Reason, broken.Error()) {
		t.Errorf("given up without an attempt: %+v", result)
	}
	if result, _ = r.want(t, message("a"), never(t), idempotency.DeadLettered).parts(); !strings.Contains(result.Reason, broken.Error()) {
		t.Errorf("given up before: %+v", result)
	}
	if record := r.wantState(t, "a", storage.Failed, 4); !strings.Contains(record.Reason, broken.Error()) {
		t.Errorf("reason %q", record.Reason)
	}
	if len(letters) != 3 || !errors.Is(letters[0].Reason, broken) || letters[0].Attempts != 3 || letters[1].Attempts != 3 ||
		letters[2].Attempts != 3 || !errors.Is(letters[2].Reason, storage.ErrExhausted) {
		t.Errorf("dead letters: %+v", letters)
	}
	r.wantEffects(t, "a", 0)
}

func TestTerminalError(t *testing.T) {
	letters := 0
	r := newRunner(t, idempotency.Options{DeadLetter: func(context.Context, idempotency.DeadLetter) error {
		letters++
		return nil
	}})
	result, _ := r.want(t, message("a"), func(context.Context) ([]byte, error) {
		return nil, idempotency.Terminal(errors.New("no such customer"))
	}, idempotency.DeadLettered).parts()
	if result.Attempt != 1 || letters != 1 {
		t.Errorf("%+v with %d dead letters", result, letters)
	}
	r.wantState(t, "a", storage.Failed, 1)
}

// A handler is not asked again after giving the message up, however often the
// dead letter cannot be kept.
func TestVerdictStands(t *testing.T) {
	var letters []idempotency.DeadLetter
	r := newRunner(t, idempotency.Options{MaxAttempts: 2, DeadLetter: func(_ context.Context, l idempotency.DeadLetter) error {
		if letters = append(letters, l); len(letters) <= 4 {
			return errors.New("the dead-letter topic is down")
		}
		return nil
	}})
	hopeless := errors.New("no such customer")
	result, _ := r.want(t, message("a"), func(ctx context.Context) ([]byte, error) {
		_, err := effect("a")(ctx)
		return nil, errors.Join(err, idempotency.Terminal(hopeless))
	}, idempotency.Retry).parts()
	ctx := limited(t)
	for !result.Done() && ctx.Err() == nil {
		if result.Pending == nil || r.wantState(t, "a", storage.Retryable, 1).State == storage.Failed {
			t.Fatalf("%+v", result)
		}
		pause(ctx, result.Wait)
		result, _ = r.Run(ctx, after(message("a"), result.Pending), never(t))
	}
	if len(letters) != 5 || letters[4].Attempts != 1 || !errors.Is(letters[4].Reason, hopeless) || result.Pending != nil {
		t.Errorf("%+v, dead letters %+v", result, letters)
	}
	r.wantEffects(t, "a", 0)
}

// After a lost answer, the next Run asks for the same claim: no second attempt,
// nor somebody else's.
func TestClaimInDoubt(t *testing.T) {
	r := newRunner(t, idempotency.Options{})
	owner := storage.NewOwner()
	_, err := r.store.Claim(limited(t), key("a"), storage.ClaimRequest{Owner: owner, Lease: time.Hour, Retention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(limited(t))
	cancel()
	pending := &idempotency.Pending{Key: key("a"), Owner: owner}
	result, err := r.Run(gone, after(message("a"), pending), never(t))
	if result.Disposition != idempotency.Unavailable || result.Pending == nil || result.Pending.Owner != owner {
		t.Errorf("%+v, %v", result, err)
	}
	result, err = r.Run(limited(t), after(message("a"), result.Pending), effect("a"))
	if result.Disposition != idempotency.Handled || result.Attempt != 1 || result.Pending != nil {
		t.Errorf("%+v, %v", result, err)
	}
	r.wantEffects(t, "a", 1)
}

// Without a place for dead letters nothing is given up.
func TestNoDeadLetter(t *testing.T) {
	r := newRunner(t, idempotency.Options{})
	attempts := 0
	result := r.untilDone(t, message("a"), func(ctx context.Context) ([]byte, error) {
		if attempts++; attempts < 4 {
			return nil, idempotency.Terminal(errors.New("hopeless"))
		}
		return effect("a")(ctx)
	})
	if result.Disposition != idempotency.Handled || result.Attempt != 4 {
		t.Errorf("%+v", result)
	}
}

// A message without a key, or contradicting the key, is put aside if possible;
// the key is not touched.
func TestRefusedMessages(t *testing.T) {
	for name, c := range map[string]struct {
		none bool
		err  error
		want idempotency.Disposition
	}{
		"kept":           {want: idempotency.DeadLettered},
		"not kept":       {err: errors.New("the topic is full"), want: idempotency.Retry},
		"no dead letter": {none: true, want: idempotency.Retry},
	} {
		t.Run(name, func(t *testing.T) {
			var letters []idempotency.DeadLetter
			o := idempotency.Options{DeadLetter: func(_ context.Context, l idempotency.DeadLetter) error {
				letters = append(letters, l)
				return c.err
			}}
			if c.none {
				o.DeadLetter = nil
			}
			r := newRunner(t, o)
			m := message("a")
			m.Fingerprint = idempotency.FingerprintBytes([]byte("one"))
			r.want(t, m, effect("a"), idempotency.Handled)

			m.Fingerprint = idempotency.FingerprintBytes([]byte("another"))
			result, err := r.want(t, m, never(t), c.want).parts()
			if !result.Done() && (!errors.Is(err, storage.ErrMismatch) || result.Wait == 0) {
				t.Errorf("another payload: %+v, %v", result, err)
			}
			result, err = r.want(t, idempotency.Message{}, never(t), c.want).parts()
			if !result.Done() && !errors.Is(err, storage.ErrBadKey) {
				t.Errorf("no key: %+v, %v", result, err)
			}
			if !c.none && (len(letters) != 2 || letters[0].Message != m || !errors.Is(letters[0].Reason, storage.ErrMismatch)) {
				t.Errorf("dead letters: %+v", letters)
			}
			r.wantState(t, "a", storage.Completed, 1)
		})
	}
}

// A handler mistreating the transaction fails; the error names the mistake.
func TestMistreatedTransaction(t *testing.T) {
	r := newRunner(t, idempotency.Options{})
	for name, c := range map[string]struct {
		do        func(ctx context.Context, tx pgx.Tx)
		want      string
		committed int
	}{
		"commit":   {do: func(ctx context.Context, tx pgx.Tx) { _ = tx.Commit(ctx) }, want: "the transaction is Transactional's"},
		"rollback": {do: func(ctx context.Context, tx pgx.Tx) { _ = tx.Rollback(ctx) }, want: "the transaction is Transactional's"},
		"swallowed error": {do: func(ctx context.Context, tx pgx.Tx) {
			_, _ = tx.Exec(ctx, `SELECT 1/0`)
		}, want: "a statement of its transaction had failed"},
		"rollback by SQL": {do: func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, `ROLLBACK`) }, want: "the handler ended the transaction by itself, by SQL"},
		"commit by SQL":   {do: func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, `COMMIT`) }, want: "the handler ended the transaction by itself, by SQL", committed: 1},
		"unread rows": {do: func(ctx context.Context, tx pgx.Tx) {
			_, _ = tx.Query(ctx, `SELECT generate_series(1, 9)`) //nolint:sqlclosecheck // rows left open are the test's subject
		}, want: "complete key: the handler returned nil, but has not closed the rows"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.want(t, message(name), func(ctx context.Context) ([]byte, error) {
				defer c.do(ctx, postgres.Tx(ctx))
				return effect(name)(ctx)
			}, idempotency.Retry).parts()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			r.wantEffects(t, name, c.committed)
			r.wantState(t, name, storage.Retryable, 1)
		})
	}
}

// A transaction kept by a handler is of no use later: the connection is another
// message's then.
func TestKeptTransaction(t *testing.T) {
	r := newRunner(t, idempotency.Options{}, func(c *pgxpool.Config) { c.MaxConns = 1 })
	const intrude = `INSERT INTO effects VALUES ('intruder', 1)`
	for name, end := range map[string]struct {
		by      func(ctx context.Context, tx pgx.Tx) error
		outcome idempotency.Disposition
	}{
		"commit":        {by: func(context.Context, pgx.Tx) error { return nil }, outcome: idempotency.Handled},
		"rollback":      {by: func(context.Context, pgx.Tx) error { return errors.New("no") }, outcome: idempotency.Retry},
		"commit by SQL": {by: func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "COMMIT"); return err }, outcome: idempotency.Retry},
	} {
		t.Run(name, func(t *testing.T) {
			var kept, part pgx.Tx
			r.want(t, message(name), func(ctx context.Context) (_ []byte, err error) {
				kept = postgres.Tx(ctx)
				if part, err = kept.Begin(ctx); err != nil {
					t.Error(err)
				}
				return nil, end.by(ctx, kept)
			}, end.outcome)
			r.want(t, message("after "+name), func(ctx context.Context) ([]byte, error) {
				for _, tx := range []pgx.Tx{kept, part} {
					_, execErr := tx.Exec(ctx, intrude)
					_, queryErr := tx.Query(ctx, intrude) //nolint:sqlclosecheck // there are none
					batch := &pgx.Batch{}
					batch.Queue(intrude)
					_, copyErr := tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"id", "attempt"},
						pgx.CopyFromRows([][]any{{"intruder", 1}}))
					_, beginErr := tx.Begin(ctx)
					for _, err := range []error{
						execErr, queryErr, copyErr, beginErr,
						tx.QueryRow(ctx, intrude+` RETURNING attempt`).Scan(new(int)), tx.SendBatch(ctx, batch).Close(),
					} {
						if !errors.Is(err, pgx.ErrTxClosed) {
							t.Errorf("%v, want %v", err, pgx.ErrTxClosed)
						}
					}
				}
				return effect(name)(ctx)
			}, idempotency.Handled)
			r.wantEffects(t, name, 1)
			if n := query[int](t, r.pool, `SELECT count(*) FROM effects WHERE id = 'intruder'`); n != 0 {
				t.Errorf("%d writes are in another message's transaction", n)
			}
		})
	}
}

// A constraint checked at the commit fails the attempt.
func TestCommitRefused(t *testing.T) {
	r := newRunner(t, idempotency.Options{})
	_, err := r.want(t, message("a"), func(ctx context.Context) ([]byte, error) {
		if _, err := effect("a")(ctx); err != nil {
			return nil, err
		}
		_, err := postgres.Tx(ctx).Exec(ctx, `INSERT INTO refused VALUES ('a', 1)`)
		return nil, err
	}, idempotency.Retry).parts()
	if !strings.Contains(fmt.Sprint(err), "refused_n_key") {
		t.Error(err)
	}
	r.wantEffects(t, "a", 0)
	r.wantState(t, "a", storage.Retryable, 1)
}

// A handler is tried again at once after the end of the context, and excused.
func TestCancelled(t *testing.T) {
	r := newRunner(t, idempotency.Options{MaxAttempts: 1, DeadLetter: func(context.Context, idempotency.DeadLetter) error {
		t.Error("a dead letter")
		return nil
	}})
	cause := errors.New("the partition is revoked")
	for range 3 {
		ctx, cancel := context.WithCancelCause(limited(t))
		result, err := r.Run(ctx, message("a"), func(ctx context.Context) ([]byte, error) {
			if _, err := effect("a")(ctx); err != nil {
				return nil, err
			}
			cancel(cause)
			_, err := postgres.Tx(ctx).Exec(ctx, `SELECT pg_sleep(60)`)
			return nil, err
		})
		if result.Disposition != idempotency.Retry || result.Wait != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v", result, err)
		}
	}
	r.wantEffects(t, "a", 0)
	// A context ending after the work is no reason to discard the work.
	ctx, cancel := context.WithCancel(limited(t))
	result, err := r.Run(ctx, message("a"), func(ctx context.Context) ([]byte, error) {
		defer cancel()
		return effect("a")(ctx)
	})
	if result.Disposition != idempotency.Handled || result.Attempt != 4 || err != nil {
		t.Errorf("%+v, %v", result, err)
	}
	r.wantEffects(t, "a", 1)
}
