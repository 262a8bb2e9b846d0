package postgres_test

import (
	"cmp"
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
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// business is the handlers' tables. Only the runner prevents double effects.
var business = outbox.Schema + `;
	CREATE TABLE effects (id text NOT NULL, attempt int NOT NULL);
	CREATE TABLE refused (id text PRIMARY KEY, n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
	INSERT INTO refused VALUES ('present', 1);`

// runner is a Processor around a Transactional, with the database.
type runner struct {
	*idempotency.Processor
	store *postgres.Transactional
	pool  *pgxpool.Pool // not the runner's
	url   string
}

// newRunner returns a runner with short times on a separate database; the pool
// is configured by change.
func newRunner(t testing.TB, o idempotency.Options, change ...func(*pgxpool.Config)) runner {
	t.Helper()
	return newRunnerWith(t, postgres.Options{}, o, change...)
}

func newRunnerWith(t testing.TB, table postgres.Options, o idempotency.Options, change ...func(*pgxpool.Config)) runner {
	t.Helper()
	url := newDatabase(t)
	admin := connect(t, url)
	create(t, admin, table)
	exec(t, admin, business)
	r := newRunnerOn(t, admin, connect(t, url, change...), table, o)
	r.url = url
	return r
}

// newRunnerOn returns a runner on a database with the tables.
func newRunnerOn(t testing.TB, admin, pool *pgxpool.Pool, table postgres.Options, o idempotency.Options) runner {
	t.Helper()
	if o.FirstRetry == 0 {
		o.FirstRetry, o.LastRetry = time.Millisecond, 4*time.Millisecond
	}
	if o.DeadLetter == nil {
		o.MaxAttempts = -1
	}
	store, err := postgres.NewTransactional(pool, table)
	if err != nil {
		t.Fatal(err)
	}
	o.Store = store
	return runner{Processor: newProcessor(t, o), store: store, pool: admin}
}

// newProcessor returns a Processor, closed at the end of the test.
func newProcessor(t testing.TB, o idempotency.Options) *idempotency.Processor {
	t.Helper()
	p := must.Get(idempotency.New(o))(t)
	t.Cleanup(p.Close)
	return p
}

func message(id string) idempotency.Message { return idempotency.Message{Key: key(id)} }

// after returns the message for another Run.
func after(m idempotency.Message, p *idempotency.Pending) idempotency.Message {
	m.Pending = p
	return m
}

// effect is a handler writing a business row and an event.
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

// wantEffects asserts how often the effects of an id, and the events, are
// there.
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
func (r runner) wantState(t testing.TB, id string, state storage.State, attempts int) storage.Record {
	t.Helper()
	record, err := r.store.Inspect(limited(t), key(id))
	if err != nil || record.State != state || record.Attempts != attempts {
		t.Errorf("%s is %s after %d attempts, %v; want %s after %d", id, record.State, record.Attempts, err, state, attempts)
	}
	return record
}

// outcome is a Run's result.
type outcome struct {
	result idempotency.Result
	err    error
}

func (o outcome) parts() (idempotency.Result, error) { return o.result, o.err }

// want runs a message and asserts the outcome.
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

// untilDone runs a message as a consumer does. Lost connections are forgotten at
// once: claims go on to share the round trip of the begin.
func (r runner) untilDone(t testing.TB, m idempotency.Message, h idempotency.Handler) idempotency.Result {
	t.Helper()
	ctx := hook.WithInterval(limited(t), 0)
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
	for name, o := range map[string]postgres.Options{
		"plain":        {},
		"partitioned":  {Partitioned: true},
		"serializable": {Isolation: pgx.Serializable},
		"repeatable":   {Isolation: pgx.RepeatableRead, IdleTimeout: -1},
		"committed":    {Isolation: pgx.ReadCommitted, IdleTimeout: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunnerWith(t, o, idempotency.Options{})
			result, _ := r.want(t, message("a"), effect("a"), idempotency.Handled).parts()
			if result.Attempt != 1 || string(result.Value) != "result of a" {
				t.Errorf("first: %+v", result)
			}
			result, _ = r.want(t, message("a"), never(t), idempotency.Skipped).parts()
			if result.Attempt != 0 || string(result.Value) != "result of a" {
				t.Errorf("second: %+v", result)
			}
			r.wantEffects(t, "a", 1)
			r.wantState(t, "a", storage.Completed, 1)
		})
	}
}

// The offers of the handler's context and transaction.
func TestHandlerContext(t *testing.T) {
	r := newRunnerWith(t, postgres.Options{IdleTimeout: 90 * time.Second, Isolation: pgx.RepeatableRead}, idempotency.Options{})
	if _, err := postgres.Tx(t.Context()).Exec(t.Context(), `SELECT 1`); err == nil || !strings.Contains(err.Error(), "there is no transaction") {
		t.Errorf("outside of a handler: %v", err)
	}
	r.want(t, message("a"), func(ctx context.Context) ([]byte, error) {
		lease, ok := storage.LeaseFrom(ctx)
		record, err := r.store.Inspect(ctx, key("a"))
		if !ok || err != nil || !record.HeldBy(lease) || record.State != storage.Processing {
			t.Errorf("lease %+v of record %+v, %v", lease, record, err)
		}
		var idle, isolation string
		err = postgres.Tx(ctx).QueryRow(ctx, `SELECT current_setting('idle_in_transaction_session_timeout'),
			current_setting('transaction_isolation')`).Scan(&idle, &isolation)
		if err != nil || idle != "90s" && idle != "1min 30s" || isolation != "repeatable read" {
			t.Errorf("idle timeout %s, isolation %s, %v", idle, isolation, err)
		}
		// A failing part is undone by itself.
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

// However a pool sends everything in a single round trip, and whatever the
// isolation, a message's effect is there once or not at all.
func TestWaysToConnect(t *testing.T) {
	for name, c := range map[string]struct {
		mode         pgx.QueryExecMode
		usual, given pgx.TxIsoLevel
	}{
		"simple protocol":                    {mode: pgx.QueryExecModeSimpleProtocol, usual: pgx.ReadCommitted},
		"simple protocol, serializable":      {mode: pgx.QueryExecModeSimpleProtocol, usual: pgx.ReadCommitted, given: pgx.Serializable},
		"unnamed statements, serializable":   {mode: pgx.QueryExecModeExec, usual: pgx.Serializable},
		"cached descriptions":                {mode: pgx.QueryExecModeCacheDescribe, usual: pgx.RepeatableRead, given: pgx.ReadCommitted},
		"descriptions, repeatable read":      {mode: pgx.QueryExecModeDescribeExec, usual: pgx.RepeatableRead},
		"prepared statements, less isolated": {mode: pgx.QueryExecModeCacheStatement, usual: pgx.Serializable, given: pgx.ReadCommitted},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunnerWith(t, postgres.Options{Isolation: c.given}, idempotency.Options{}, connection(string(c.usual), c.mode)...)
			for n := range 4 { // the first claims by itself, the next in the round trip of the begin
				id := fmt.Sprint(n)
				handled, _ := r.want(t, message(id), func(ctx context.Context) ([]byte, error) {
					var isolation, idle string
					var locks int
					err := postgres.Tx(ctx).QueryRow(ctx, `SELECT current_setting('transaction_isolation'),
						current_setting('idle_in_transaction_session_timeout'),
						(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())`).Scan(&isolation, &idle, &locks)
					if err != nil || isolation != string(cmp.Or(c.given, c.usual)) || idle != "1min" || locks != 1 {
						t.Errorf("%s, idle for %s, %d locks, %v", isolation, idle, locks, err)
					}
					return effect(id)(ctx)
				}, idempotency.Handled).parts()
				r.wantEffects(t, id, 1)
				if record := r.wantState(t, id, storage.Completed, 1); string(record.Result) != string(handled.Value) {
					t.Errorf("the result is %q", record.Result)
				}
				if n == 2 {
					r.want(t, message(id), never(t), idempotency.Skipped)
				}
			}
			r.want(t, message("lost"), func(ctx context.Context) ([]byte, error) {
				if _, err := r.store.Release(ctx, key("lost")); err != nil {
					t.Error(err)
				}
				return effect("lost")(ctx)
			}, idempotency.Lost)
			r.want(t, message("refused"), func(ctx context.Context) ([]byte, error) {
				_, err := postgres.Tx(ctx).Exec(ctx, `INSERT INTO refused VALUES ('refused', 1)`)
				return nil, errors.Join(err, second(effect("refused")(ctx)))
			}, idempotency.Retry)
			for _, id := range []string{"lost", "refused"} {
				r.wantEffects(t, id, 0)
				r.wantState(t, id, storage.Retryable, map[string]int{"lost": 0, "refused": 1}[id])
				r.untilDone(t, message(id), effect(id))
				r.wantEffects(t, id, 1)
			}
		})
	}
}

// While a handler runs, also beyond the lease, another consumer is told so at
// once, and skips the message after the handler's end.
func TestTwoAtOnce(t *testing.T) {
	r := newRunner(t, idempotency.Options{Lease: 10 * time.Millisecond})
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
	await.Until(t, "the lease is over", func() bool {
		record, err := r.store.Inspect(limited(t), key("a"))
		return err == nil && record.LeaseUntil.Before(time.Now().Add(-time.Second/2))
	})
	for range 3 {
		result, err := r.want(t, message("a"), never(t), idempotency.Elsewhere).parts()
		if err == nil || result.Wait <= 0 {
			t.Errorf("elsewhere: %+v, %v", result, err)
		}
	}
	close(end)
	running.Wait()
	r.want(t, message("a"), never(t), idempotency.Skipped)
	r.wantState(t, "a", storage.Completed, 1)
	r.wantEffects(t, "a", 1)
}

// An operator's release takes the key from a running handler.
func TestReleasedMeanwhile(t *testing.T) {
	var losses []idempotency.Loss
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		t.Run(string(isolation), func(t *testing.T) {
			losses = nil
			r := newRunnerWith(t, postgres.Options{Isolation: isolation}, idempotency.Options{Observer: idempotency.Observer{
				LeaseLost: func(l idempotency.Loss) { losses = append(losses, l) },
			}})
			_, err := r.want(t, message("a"), func(ctx context.Context) ([]byte, error) {
				if _, err := r.store.Release(limited(t), key("a")); err != nil {
					t.Error(err)
				}
				return effect("a")(ctx)
			}, idempotency.Lost).parts()
			if !errors.Is(err, storage.ErrLeaseLost) || len(losses) != 1 {
				t.Errorf("%v with %d losses", err, len(losses))
			}
			r.wantEffects(t, "a", 0)
			r.want(t, message("a"), effect("a"), idempotency.Handled)
			r.wantEffects(t, "a", 1)
		})
	}
}

func TestObserver(t *testing.T) {
	var seen []string
	note := func(format string, a ...any) { seen = append(seen, fmt.Sprintf(format, a...)) }
	r := newRunnerWith(t, postgres.Options{MaxResultBytes: 5}, idempotency.Options{
		Observer: idempotency.Observer{
			Claim: func(_ idempotency.Message, c storage.Claim) { note("%s", c.Outcome) },
			Run: func(_ idempotency.Message, r idempotency.Result, err error, _ time.Duration) {
				note("%s %v", r.Disposition, err)
			},
			ResultDropped: func(_ idempotency.Message, size int) { note("dropped %d", size) },
			StoreCall:     func(op storage.Operation, _ time.Duration, err error) { note("%s %v", op, err) },
		},
	})
	r.want(t, message("a"), effect("a"), idempotency.Handled)
	result, _ := r.want(t, message("a"), never(t), idempotency.Skipped).parts()
	if result.Value != nil {
		t.Errorf("the dropped result is %q", result.Value)
	}
	r.want(t, message("b"), func(context.Context) ([]byte, error) { return nil, errors.New("no") }, idempotency.Retry)
	want := []string{
		"reserve <nil>", "claim <nil>", "claimed", "dropped 11", "complete <nil>", "handled <nil>",
		"reserve <nil>", "claim <nil>", "duplicate", "skipped <nil>",
		"reserve <nil>", "claim <nil>", "claimed", "fail <nil>", `retry message "test/b": no`,
	}
	if strings.Join(seen, ", ") != strings.Join(want, ", ") {
		t.Errorf("seen %s\nwant %s", strings.Join(seen, ", "), strings.Join(want, ", "))
	}
}

func TestBadOptions(t *testing.T) {
	pool := connect(t, "postgres://nobody@127.0.0.1:1/none")
	for name, o := range map[string]postgres.Options{
		"isolation": {Isolation: "none; drop table"},
		"table":     {Table: "a.b.c"},
	} {
		if _, err := postgres.NewTransactional(pool, o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := postgres.New(pool, postgres.Options{Isolation: pgx.Serializable}); err == nil {
		t.Error("a store without transactions takes their isolation level")
	}
	store, err := postgres.NewTransactional(pool, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]idempotency.Options{
		"fail open": {FailOpen: true},
		"lease":     {Lease: time.Microsecond},
		// Changes to undo are rolled back.
		"compensation": {Compensate: func(context.Context, idempotency.Loss) {}},
		// PostgreSQL would end the transaction first.
		"handler timeout": {HandlerTimeout: time.Minute + time.Second},
	} {
		o.Store, o.MaxAttempts = store, -1
		if _, err := idempotency.New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for timeout, idle := range map[time.Duration]time.Duration{time.Minute: 0, time.Hour: time.Hour, 2 * time.Hour: -1} {
		store, err := postgres.NewTransactional(pool, postgres.Options{IdleTimeout: idle})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := idempotency.New(idempotency.Options{Store: store, MaxAttempts: -1, HandlerTimeout: timeout}); err != nil {
			t.Errorf("HandlerTimeout %s with IdleTimeout %s: %v", timeout, idle, err)
		}
	}
}
