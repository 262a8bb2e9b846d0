package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// While others have all connections, a Run says so in time, without a claim: the
// pool is busy, the store not silent.
func TestNoConnectionIsFree(t *testing.T) {
	holder := newRunner(t, idempotency.Options{}, func(c *pgxpool.Config) { c.MaxConns = 1 })
	var waited error
	options := idempotency.Options{Store: holder.store, MaxAttempts: -1, Timeout: 100 * time.Millisecond}
	options.Observer.StoreCall = func(op storage.Operation, _ time.Duration, err error) { waited = fmt.Errorf("%s: %w", op, err) }
	waiter := newProcessor(t, options)
	holder.want(t, message("a"), func(ctx context.Context) ([]byte, error) {
		result, err := waiter.Run(limited(t), message("b"), never(t))
		if result.Disposition != idempotency.Retry || result.Wait <= 0 || !errors.Is(err, storage.ErrBusy) {
			t.Errorf("%+v, %v", result, err)
		}
		return effect("a")(ctx)
	}, idempotency.Handled)
	if !errors.Is(waited, storage.ErrBusy) || !strings.HasPrefix(waited.Error(), "reserve: ") {
		t.Errorf("the observer was told of %v", waited)
	}
	if n := query[int](t, holder.pool, `SELECT count(*) FROM idempotency_keys WHERE id = 'b'`); n != 0 {
		t.Error("b is claimed")
	}
}

// A Run needs a single connection, for every outcome.
func TestPoolOfOneConnection(t *testing.T) {
	r := newRunner(t, idempotency.Options{
		MaxAttempts: 2, FirstRetry: time.Millisecond, LastRetry: 4 * time.Millisecond,
		DeadLetter: func(context.Context, idempotency.DeadLetter) error { return nil },
	}, func(c *pgxpool.Config) { c.MaxConns = 1 })
	broken := func(context.Context) ([]byte, error) { return nil, errors.New("broken") }
	var running sync.WaitGroup
	for n := range 8 {
		running.Go(func() {
			id := fmt.Sprint(n)
			if got := r.untilDone(t, message(id), effect(id)); got.Disposition != idempotency.Handled {
				t.Errorf("%s is %s", id, got.Disposition)
			}
			if got := r.untilDone(t, message(id), never(t)); got.Disposition != idempotency.Skipped {
				t.Errorf("%s, again, is %s", id, got.Disposition)
			}
			if got := r.untilDone(t, message("broken-"+id), broken); got.Disposition != idempotency.DeadLettered {
				t.Errorf("broken-%s is %s", id, got.Disposition)
			}
		})
	}
	running.Wait()
}
