package postgres_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
)

// A new message behind a new message costs a round trip for the claim and begin,
// and another for the completion and commit; a duplicate behind a duplicate
// costs a single round trip.
func TestRoundTripsOfAMessage(t *testing.T) {
	count := 0
	r := newRunner(t, idempotency.Options{}, traced(&tracer{
		before: func(*pgx.Conn, string) { count++ }, after: func(*pgx.Conn, string) {},
	}))
	nothing := func(context.Context) ([]byte, error) { return nil, nil }
	var took []int
	for _, m := range []struct {
		id   string
		want idempotency.Disposition
	}{
		{"a", idempotency.Handled}, // nothing is known yet: claim, begin, completion with commit
		{"b", idempotency.Handled},
		{"c", idempotency.Handled},
		{"a", idempotency.Skipped}, // taken for new at first: rollback, claim
		{"b", idempotency.Skipped},
		{"c", idempotency.Skipped},
		{"d", idempotency.Handled},
		{"e", idempotency.Handled},
	} {
		count = 0
		r.want(t, message(m.id), nothing, m.want)
		took = append(took, count)
	}
	if want := []int{3, 2, 2, 3, 1, 1, 3, 2}; !slices.Equal(took, want) {
		t.Errorf("%d round trips, want %d", took, want)
	}
}

// However the handler's transaction begins, its settings are as asked for, and
// the commit waits for the disk as any other, though the claim's does not.
func TestTransactionsOfNewMessages(t *testing.T) {
	for _, isolation := range []pgx.TxIsoLevel{"", pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(isolation), func(t *testing.T) {
			r := newRunnerWith(t, postgres.Options{IdleTimeout: 90 * time.Second, Isolation: isolation}, idempotency.Options{})
			want := string(isolation)
			if want == "" {
				want = query[string](t, r.pool, `SHOW default_transaction_isolation`)
			}
			durable := query[string](t, r.pool, `SHOW synchronous_commit`)
			for _, id := range []string{"a", "b", "c"} {
				r.want(t, message(id), func(ctx context.Context) ([]byte, error) {
					var idle, level, commit string
					err := postgres.Tx(ctx).QueryRow(ctx, `SELECT current_setting('idle_in_transaction_session_timeout'),
						current_setting('transaction_isolation'), current_setting('synchronous_commit')`).Scan(&idle, &level, &commit)
					if err != nil || idle != "90s" || level != want || commit != durable {
						t.Errorf("%s: idle timeout %s, isolation %s, synchronous_commit %s, %v", id, idle, level, commit, err)
					}
					return effect(id)(ctx)
				}, idempotency.Handled)
				r.wantEffects(t, id, 1)
			}
		})
	}
}

// An absent key is locked while the last handler still works.
func TestAForgottenKeyWhoseHandlerWorks(t *testing.T) {
	r := newRunner(t, idempotency.Options{})
	r.want(t, message("a"), effect("a"), idempotency.Handled)
	r.want(t, message("b"), func(ctx context.Context) ([]byte, error) {
		exec(t, r.pool, `DELETE FROM idempotency_keys WHERE id = 'b'`)
		r.want(t, message("c"), effect("c"), idempotency.Handled) // the next is taken for new
		r.want(t, message("b"), never(t), idempotency.Elsewhere)
		return effect("b")(ctx)
	}, idempotency.Lost)
	r.wantEffects(t, "b", 0)
	r.want(t, message("b"), effect("b"), idempotency.Handled)
	r.wantEffects(t, "b", 1)
}

// The fence of a new message is later than the fence of every claim waited for,
// also of a forgotten claim.
func TestFenceOfANewMessageThatWaited(t *testing.T) {
	r := newRunner(t, idempotency.Options{})
	r.want(t, message("a"), effect("a"), idempotency.Handled) // the next is taken for new
	tx := begin(t, r.pool)
	in := newStore(t, sameTransaction{tx}, postgres.Options{})
	first := claim(t, in, key("b"), request())

	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	waited := make(chan int64, 1)
	running.Go(func() {
		r.want(t, message("b"), func(ctx context.Context) ([]byte, error) {
			fence, _ := idempotency.FenceFrom(ctx)
			waited <- fence
			return nil, nil
		}, idempotency.Handled)
	})
	await.Until(t, "the claim waits", func() bool {
		return query[int](t, r.pool, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	})
	if err := in.Fail(limited(t), first.Lease, storage.Failure{Retention: retention}); err != nil {
		t.Fatal(err)
	}
	second := claim(t, in, key("b"), request())
	states := []storage.State{storage.Processing}
	if n, err := in.Purge(limited(t), storage.Filter{Scope: "test", ID: "b", States: states}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := tx.Commit(limited(t)); err != nil {
		t.Fatal(err)
	}
	if fence := <-waited; fence <= second.Lease.Fence {
		t.Errorf("fence %d after %d", fence, second.Lease.Fence)
	}
}
