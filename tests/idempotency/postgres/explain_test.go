package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// An error of the server tells the remedy, and is no answer about the key.
func TestErrorsOfTheServerSayWhatToDo(t *testing.T) {
	plain, partitioned := postgres.Options{}, postgres.Options{Partitioned: true}
	for name, c := range map[string]struct {
		table, store postgres.Options
		before       string
		want         string
	}{
		"no table":        {table: postgres.Options{Table: "another"}, want: "make the table by Schema"},
		"partitioned":     {table: partitioned, store: plain, want: "set Options.Partitioned"},
		"not partitioned": {table: plain, store: partitioned, want: "other columns"},
		"another table":   {before: `ALTER TABLE idempotency_keys DROP COLUMN fence`, want: "other columns"},
		"no rights":       {before: `CREATE ROLE keys_stranger; SET ROLE keys_stranger`, want: "grant the role"},
		"read only":       {before: `SET default_transaction_read_only = on`, want: "connect to the primary"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := database(t, c.table, func(o *pgxpool.Config) { o.MaxConns = 1 })
			if c.before != "" {
				exec(t, pool, c.before)
			}
			if name == "no rights" {
				t.Cleanup(func() {
					if _, err := pool.Exec(context.Background(), `RESET ROLE; DROP ROLE keys_stranger`); err != nil {
						t.Error(err)
					}
				})
			}
			s := newStore(t, pool, c.store)
			_, err := s.Claim(limited(t), key("1"), request())
			if err == nil || !strings.Contains(err.Error(), c.want) || storage.Answered(err) {
				t.Errorf("claim: %v, want %q", err, c.want)
			}
		})
	}
}

// Every method asking the server explains the errors.
func TestEveryMethodExplains(t *testing.T) {
	pool := database(t, postgres.Options{Table: "another"})
	s := newStore(t, pool, postgres.Options{})
	ctx, k := limited(t), key("1")
	lease := storage.Lease{Key: k, Owner: "owner", Fence: 1}
	for method, call := range map[string]func() error{
		"extend":   func() error { return s.Extend(ctx, lease, long) },
		"complete": func() error { return s.Complete(ctx, lease, nil, retention) },
		"fail":     func() error { return s.Fail(ctx, lease, storage.Failure{Retention: retention}) },
		"inspect":  func() error { return second(s.Inspect(ctx, k)) },
		"release":  func() error { return second(s.Release(ctx, k)) },
		"purge":    func() error { return second(s.Purge(ctx, storage.Filter{Scope: k.Scope, ID: k.ID})) },
		"purge of a scope": func() error {
			return second(s.Purge(ctx, storage.Filter{Scope: k.Scope}))
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "make the table by Schema") || errors.Is(err, storage.ErrLeaseLost) {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
