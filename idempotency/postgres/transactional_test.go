package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// business is what the handlers of the tests write to. Nothing but the runner
// keeps an effect from being there twice.
var business = outbox.Schema + `;
	CREATE TABLE effects (id text NOT NULL, attempt int NOT NULL);
	CREATE TABLE refused (id text PRIMARY KEY, n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
	INSERT INTO refused VALUES ('present', 1);`

// runner is a Transactional with its database.
type runner struct {
	*postgres.Transactional
	pool *pgxpool.Pool // not the runner's
	url  string
}

// newRunner returns a runner with short times on a database of its own; its pool
// is configured by change.
func newRunner(t testing.TB, o postgres.TransactionalOptions, change ...func(*pgxpool.Config)) runner {
	t.Helper()
	url := newDatabase(t)
	admin := connect(t, url)
	create(t, admin, o.StoreOptions)
	exec(t, admin, business)
	return runner{Transactional: newTransactional(t, connect(t, url, change...), o), pool: admin, url: url}
}

func newTransactional(t testing.TB, pool *pgxpool.Pool, o postgres.TransactionalOptions) *postgres.Transactional {
	t.Helper()
	if o.FirstRetry == 0 {
		o.FirstRetry, o.LastRetry = time.Millisecond, 4*time.Millisecond
	}
	if o.DeadLetter == nil {
		o.MaxAttempts = -1
	}
	x, err := postgres.NewTransactional(pool, o)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func message(id string) idempotency.Message { return idempotency.Message{Key: key(id)} }

// effect is a handler that writes a business row and an event.
func effect(id string) idempotency.Handler {
	return func(ctx context.Context) ([]byte, error) {
		tx := postgres.Tx(ctx)
		if _, err := tx.Exec(ctx, `INSERT INTO effects SELECT $1, attempts FROM idempotency_keys WHERE id = $1`, id); err != nil {
			return nil, err
		}
		_, err := outbox.Write(ctx, tx, outbox.Event{AggregateType: "test", AggregateID: id, Type: "Done", Payload: map[string]string{"id": id}})
		return []byte("result of " + id), err
	}
}

// wantEffects asserts how often the effects of an id, and its events, are there.
func (r runner) wantEffects(t testing.TB, id string, want int) {
	t.Helper()
	for _, table := range []string{
		`SELECT count(*) FROM effects WHERE id = $1`, `SELECT count(*) FROM outbox WHERE aggregateid = $1`,
	} {
		if n := query[int](t, r.pool, table, id); n != want {
			t.Errorf("%s: %d, want %d: %s", id, n, want, table)
		}
	}
}

// wantState asserts where a key stands.
func (r runner) wantState(t testing.TB, id string, state idempotency.State, attempts int) idempotency.Record {
	t.Helper()
	record, err := r.Store().Inspect(limited(t), key(id))
	if err != nil || record.State != state || record.Attempts != attempts {
		t.Errorf("%s is %s after %d attempts, %v; want %s after %d", id, record.State, record.Attempts, err, state, attempts)
	}
	return record
}

// outcome is what a Run returned.
type outcome struct {
	result idempotency.Result
	err    error
}

func (o outcome) parts() (idempotency.Result, error) { return o.result, o.err }

// want runs a message and asserts what becomes of it.
func (r runner) want(t testing.TB, m idempotency.Message, h idempotency.Handler, d idempotency.Disposition) outcome {
	t.Helper()
	result, err := r.Run(limited(t), m, h)
	if result.Disposition != d {
		t.Errorf("%s: %s, %v; want %s", m.Key, result.Disposition, err, d)
	}
	if result.Done() != (err == nil) {
		t.Errorf("%s: %s with error %v", m.Key, result.Disposition, err)
	}
	return outcome{result, err}
}

// untilDone runs a message as a consumer does.
func (r runner) untilDone(t testing.TB, m idempotency.Message, h idempotency.Handler) idempotency.Result {
	t.Helper()
	ctx := limited(t)
	for {
		result, err := r.Run(ctx, m, h)
		if result.Done() {
			return result
		}
		if ctx.Err() != nil {
			t.Errorf("%s is not done: %s, %v", m.Key, result.Disposition, err)
			return result
		}
		pause(ctx, max(result.Wait, time.Millisecond))
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func never(t testing.TB) idempotency.Handler {
	return func(context.Context) ([]byte, error) {
		t.Error("the handler runs")
		return nil, nil
	}
}

func TestRunOnce(t *testing.T) {
	for name, o := range map[string]postgres.TransactionalOptions{
		"plain":        {},
		"partitioned":  {StoreOptions: postgres.StoreOptions{Partitioned: true}},
		"serializable": {Isolation: pgx.Serializable},
		"repeatable":   {Isolation: pgx.RepeatableRead, IdleTimeout: -1},
		"committed":    {Isolation: pgx.ReadCommitted, IdleTimeout: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t, o)
			result, _ := r.want(t, message("a"), effect("a"), idempotency.Handled).parts()
			if result.Attempt != 1 || string(result.Value) != "result of a" {
				t.Errorf("first: %+v", result)
			}
			result, _ = r.want(t, message("a"), never(t), idempotency.Skipped).parts()
			if result.Attempt != 0 || string(result.Value) != "result of a" {
				t.Errorf("second: %+v", result)
			}
			r.wantEffects(t, "a", 1)
			r.wantState(t, "a", idempotency.Completed, 1)
		})
	}
}

// What the handler's context and transaction offer.
func TestHandlerContext(t *testing.T) {
	r := newRunner(t, postgres.TransactionalOptions{IdleTimeout: 90 * time.Second, Isolation: pgx.RepeatableRead})
	if postgres.Tx(t.Context()) != nil {
		t.Error("a transaction outside of a handler")
	}
	r.want(t, message("a"), func(ctx context.Context) ([]byte, error) {
		lease, ok := idempotency.LeaseFrom(ctx)
		record, err := r.Store().Inspect(ctx, key("a"))
		if !ok || err != nil || !record.HeldBy(lease) || record.State != idempotency.Processing {
			t.Errorf("lease %+v of record %+v, %v", lease, record, err)
		}
		var idle, isolation string
		err = postgres.Tx(ctx).QueryRow(ctx, `SELECT current_setting('idle_in_transaction_session_timeout'),
			current_setting('transaction_isolation')`).Scan(&idle, &isolation)
		if err != nil || idle != "90s" && idle != "1min 30s" || isolation != "repeatable read" {
			t.Errorf("idle timeout %s, isolation %s, %v", idle, isolation, err)
		}
		// A part that fails is undone by itself.
		part, err := postgres.Tx(ctx).Begin(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := part.Exec(ctx, `SELECT 1/0`); err == nil {
			t.Error("no error")
		}
		if err := part.Rollback(ctx); err != nil {
			return nil, err
		}
		return effect("a")(ctx)
	}, idempotency.Handled)
	r.wantEffects(t, "a", 1)
}

func TestFailedAttempts(t *testing.T) {
	broken := errors.New("the handler fails")
	var letters []idempotency.DeadLetter
	var r runner
	r = newRunner(t, postgres.TransactionalOptions{
		MaxAttempts: 3, FirstRetry: time.Minute, LastRetry: time.Hour,
		DeadLetter: func(_ context.Context, l idempotency.DeadLetter) error {
			// Its key is not given up before this returns.
			r.wantState(t, l.Message.Key.ID, idempotency.Processing, 3+len(letters))
			letters = append(letters, l)
			if len(letters) == 1 {
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
	result, err = r.want(t, message("a"), never(t), idempotency.Retry).parts()
	if !errors.Is(err, idempotency.ErrNotDue) || result.Attempt != 0 || result.Wait <= 0 {
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
	if result, _ = r.want(t, message("a"), never(t), idempotency.DeadLettered).parts(); result.Attempt != 0 {
		t.Errorf("given up without an attempt: %+v", result)
	}
	r.want(t, message("a"), never(t), idempotency.DeadLettered)
	if record := r.wantState(t, "a", idempotency.Failed, 4); !strings.Contains(record.Reason, broken.Error()) {
		t.Errorf("reason %q", record.Reason)
	}
	if len(letters) != 2 || !errors.Is(letters[0].Reason, broken) || letters[0].Attempts != 3 || letters[1].Attempts != 3 || !errors.Is(letters[1].Reason, idempotency.ErrExhausted) {
		t.Errorf("dead letters: %+v", letters)
	}
	r.wantEffects(t, "a", 0)
}

func TestTerminalError(t *testing.T) {
	letters := 0
	r := newRunner(t, postgres.TransactionalOptions{DeadLetter: func(context.Context, idempotency.DeadLetter) error {
		letters++
		return nil
	}})
	result, _ := r.want(t, message("a"), func(context.Context) ([]byte, error) {
		return nil, idempotency.Terminal(errors.New("no such customer"))
	}, idempotency.DeadLettered).parts()
	if result.Attempt != 1 || letters != 1 {
		t.Errorf("%+v with %d dead letters", result, letters)
	}
	r.wantState(t, "a", idempotency.Failed, 1)
}

// Without a place for dead letters nothing is given up.
func TestNoDeadLetter(t *testing.T) {
	r := newRunner(t, postgres.TransactionalOptions{})
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

// A handler that takes its process down is counted, and given up in the end. A
// panic that nobody handles in Run leaves what a crash leaves: no word.
func TestCrashLoop(t *testing.T) {
	letters := 0
	r := newRunner(t, postgres.TransactionalOptions{
		Lease: time.Millisecond, MaxAttempts: 3,
		DeadLetter: func(context.Context, idempotency.DeadLetter) error { letters++; return nil },
	})
	crashes := 0
	run := func() (result idempotency.Result) {
		defer func() { _ = recover() }()
		return r.untilDone(t, message("a"), func(ctx context.Context) ([]byte, error) {
			crashes++
			_, _ = effect("a")(ctx)
			panic("crash")
		})
	}
	for run().Disposition != idempotency.DeadLettered {
		if crashes > 3 {
			t.Fatal("the message is not given up")
		}
	}
	if crashes != 3 || letters != 1 {
		t.Errorf("%d crashes and %d dead letters", crashes, letters)
	}
	r.wantEffects(t, "a", 0)
}

// While a handler runs, also beyond its lease, another consumer is told so at
// once; when it ends, the other skips.
func TestTwoAtOnce(t *testing.T) {
	r := newRunner(t, postgres.TransactionalOptions{Lease: 10 * time.Millisecond})
	started, end := make(chan struct{}), make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		r.want(t, message("a"), func(ctx context.Context) ([]byte, error) {
			close(started)
			<-end
			return effect("a")(ctx)
		}, idempotency.Handled)
	})
	<-started
	eventually(t, func() bool { // the lease is over
		record, err := r.Store().Inspect(limited(t), key("a"))
		return err == nil && record.LeaseUntil.Before(time.Now().Add(-time.Second/2))
	})
	for range 3 {
		result, err := r.want(t, message("a"), never(t), idempotency.Elsewhere).parts()
		if !errors.Is(err, idempotency.ErrInProgress) || result.Wait <= 0 {
			t.Errorf("elsewhere: %+v, %v", result, err)
		}
	}
	close(end)
	running.Wait()
	r.want(t, message("a"), never(t), idempotency.Skipped)
	r.wantState(t, "a", idempotency.Completed, 1)
	r.wantEffects(t, "a", 1)
}

// eventually waits for a condition.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	ctx := limited(t)
	for !ok() {
		if ctx.Err() != nil {
			t.Fatal("it never came true")
		}
		pause(ctx, 5*time.Millisecond)
	}
}

// An operator who releases the key takes it from a running handler.
func TestReleasedMeanwhile(t *testing.T) {
	var losses []idempotency.Loss
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		t.Run(string(isolation), func(t *testing.T) {
			losses = nil
			r := newRunner(t, postgres.TransactionalOptions{Isolation: isolation, Observer: idempotency.Observer{
				LeaseLost: func(l idempotency.Loss) { losses = append(losses, l) },
			}})
			_, err := r.want(t, message("a"), func(ctx context.Context) ([]byte, error) {
				if _, err := r.Store().Release(limited(t), key("a")); err != nil {
					t.Error(err)
				}
				return effect("a")(ctx)
			}, idempotency.Lost).parts()
			if !errors.Is(err, idempotency.ErrLeaseLost) || len(losses) != 1 {
				t.Errorf("%v with %d losses", err, len(losses))
			}
			r.wantEffects(t, "a", 0)
			r.want(t, message("a"), effect("a"), idempotency.Handled)
			r.wantEffects(t, "a", 1)
		})
	}
}

// A message that contradicts its key, or has none, is put aside if that can be
// done; the key is not touched.
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
			o := postgres.TransactionalOptions{DeadLetter: func(_ context.Context, l idempotency.DeadLetter) error {
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
			if !result.Done() && (!errors.Is(err, idempotency.ErrMismatch) || result.Wait == 0) {
				t.Errorf("another payload: %+v, %v", result, err)
			}
			result, err = r.want(t, idempotency.Message{}, never(t), c.want).parts()
			if !result.Done() && !errors.Is(err, idempotency.ErrBadKey) {
				t.Errorf("no key: %+v, %v", result, err)
			}
			if !c.none && (len(letters) != 2 || letters[0].Message != m || !errors.Is(letters[0].Reason, idempotency.ErrMismatch)) {
				t.Errorf("dead letters: %+v", letters)
			}
			r.wantState(t, "a", idempotency.Completed, 1)
		})
	}
}

// A handler that mistreats its transaction fails, and says how.
func TestMistreatedTransaction(t *testing.T) {
	r := newRunner(t, postgres.TransactionalOptions{})
	for name, c := range map[string]struct {
		do        func(ctx context.Context, tx pgx.Tx)
		want      error
		committed int
	}{
		"commit":   {do: func(ctx context.Context, tx pgx.Tx) { _ = tx.Commit(ctx) }, want: postgres.ErrTxControl},
		"rollback": {do: func(ctx context.Context, tx pgx.Tx) { _ = tx.Rollback(ctx) }, want: postgres.ErrTxControl},
		"swallowed error": {do: func(ctx context.Context, tx pgx.Tx) {
			_, _ = tx.Exec(ctx, `SELECT 1/0`)
		}, want: postgres.ErrTxFailed},
		"rollback by SQL": {do: func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, `ROLLBACK`) }, want: postgres.ErrTxEnded},
		"commit by SQL":   {do: func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, `COMMIT`) }, want: postgres.ErrTxEnded, committed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.want(t, message(name), func(ctx context.Context) ([]byte, error) {
				defer c.do(ctx, postgres.Tx(ctx))
				return effect(name)(ctx)
			}, idempotency.Retry).parts()
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			r.wantEffects(t, name, c.committed)
			r.wantState(t, name, idempotency.Retryable, 1)
		})
	}
}

// A constraint that is checked at the commit fails the attempt.
func TestCommitRefused(t *testing.T) {
	r := newRunner(t, postgres.TransactionalOptions{})
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
	r.wantState(t, "a", idempotency.Retryable, 1)
}

// A handler whose context ends is tried again at once, and not counted.
func TestCancelled(t *testing.T) {
	r := newRunner(t, postgres.TransactionalOptions{MaxAttempts: 1, DeadLetter: func(context.Context, idempotency.DeadLetter) error {
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
	// A context that ends after the work is no reason to throw it away.
	ctx, cancel := context.WithCancel(limited(t))
	result, err := r.Run(ctx, message("a"), func(ctx context.Context) ([]byte, error) {
		defer cancel()
		return effect("a")(ctx)
	})
	if result.Disposition != idempotency.Handled || result.Attempt != 1 || err != nil {
		t.Errorf("%+v, %v", result, err)
	}
	r.wantEffects(t, "a", 1)
}

func TestObserver(t *testing.T) {
	var seen []string
	note := func(format string, a ...any) { seen = append(seen, fmt.Sprintf(format, a...)) }
	r := newRunner(t, postgres.TransactionalOptions{
		StoreOptions: postgres.StoreOptions{MaxResultBytes: 5},
		Observer: idempotency.Observer{
			Claim: func(_ idempotency.Message, c idempotency.Claim) { note("%s", c.Outcome) },
			Run: func(_ idempotency.Message, r idempotency.Result, err error, _ time.Duration) {
				note("%s %v", r.Disposition, err)
			},
			ResultDropped: func(_ idempotency.Message, size int) { note("dropped %d", size) },
			StoreCall:     func(op idempotency.Operation, _ time.Duration, err error) { note("%s %v", op, err) },
		},
	})
	r.want(t, message("a"), effect("a"), idempotency.Handled)
	result, _ := r.want(t, message("a"), never(t), idempotency.Skipped).parts()
	if result.Value != nil {
		t.Errorf("the dropped result is %q", result.Value)
	}
	r.want(t, message("b"), func(context.Context) ([]byte, error) { return nil, errors.New("no") }, idempotency.Retry)
	want := []string{
		"claim <nil>", "claimed", "dropped 11", "complete <nil>", "handled <nil>",
		"claim <nil>", "duplicate", "skipped <nil>",
		"claim <nil>", "claimed", "fail <nil>", `retry message "test/b": no`,
	}
	if strings.Join(seen, ", ") != strings.Join(want, ", ") {
		t.Errorf("seen %s\nwant %s", strings.Join(seen, ", "), strings.Join(want, ", "))
	}
}

func TestBadOptions(t *testing.T) {
	for name, o := range map[string]postgres.TransactionalOptions{
		"lease":     {Lease: time.Microsecond},
		"retention": {Lease: time.Hour, Retention: time.Minute},
		"retries":   {FirstRetry: time.Second, LastRetry: time.Millisecond},
		"forgotten": {LastRetry: time.Hour, Retention: time.Hour},
		"isolation": {Isolation: "none; drop table"},
		"table":     {StoreOptions: postgres.StoreOptions{Table: "a.b.c"}},
		"letters":   {MaxAttempts: 1},
	} {
		if name != "letters" {
			o.MaxAttempts = -1
		}
		if _, err := postgres.NewTransactional(nil, o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Many consumers, each of which gets every message.
func TestManyConsumers(t *testing.T) {
	r := newRunner(t, postgres.TransactionalOptions{}, func(c *pgxpool.Config) { c.MaxConns = 30 })
	const consumers, messages = 64, 8
	var running sync.WaitGroup
	for n := range consumers {
		running.Go(func() {
			for i := range messages {
				id := fmt.Sprint((i + n) % messages)
				r.untilDone(t, message(id), effect(id))
			}
		})
	}
	running.Wait()
	for i := range messages {
		r.wantEffects(t, fmt.Sprint(i), 1)
	}
}
