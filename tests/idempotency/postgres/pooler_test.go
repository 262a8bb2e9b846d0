package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// throughAPooler returns a database with the tables, and the URL of a PgBouncer in
// transaction mode in front, without prepared statements.
func throughAPooler(t *testing.T) (direct *pgxpool.Pool, url string) {
	t.Helper()
	url = newDatabase(t)
	direct = connect(t, url)
	create(t, direct, postgres.Options{})
	exec(t, direct, business)
	return direct, pgtest.Pooled(t, url, 3)
}

// PgBouncer without prepared statements fails statements of pgx's default mode,
// ours and the handlers'. No message loses an attempt: each is handled once in
// the documented mode then, although the first failure would have been the last.
func TestAPoolerThatLosesStatements(t *testing.T) {
	for name, open := range map[string]func(pool *pgxpool.Pool) (storage.Store, func(id string) idempotency.Handler){
		"Store": func(pool *pgxpool.Pool) (storage.Store, func(id string) idempotency.Handler) {
			return newStore(t, pool, postgres.Options{}), func(id string) idempotency.Handler {
				return func(ctx context.Context) ([]byte, error) {
					_, err := pool.Exec(ctx, `INSERT INTO effects VALUES ($1, 1)`, id)
					return nil, err
				}
			}
		},
		"Transactional": func(pool *pgxpool.Pool) (storage.Store, func(id string) idempotency.Handler) {
			store, err := postgres.NewTransactional(pool, postgres.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return store, effect
		},
	} {
		t.Run(name, func(t *testing.T) {
			const workers, messages = 8, 200
			direct, url := throughAPooler(t)
			// all has each message run once, by run, which returns the message's pending
			// state.
			pending := make([]*idempotency.Pending, messages)
			all := func(mode string, run func(p *idempotency.Processor, m idempotency.Message, handler idempotency.Handler) *idempotency.Pending) {
				pool := connect(t, url+"?default_query_exec_mode="+mode)
				defer pool.Close() // PgBouncer may keep connections for clients with lost statements
				store, handler := open(pool)
				p := newProcessor(t, idempotency.Options{
					Store: store, MaxAttempts: 1, FirstRetry: time.Millisecond, LastRetry: 4 * time.Millisecond, Lease: 2 * time.Second, Timeout: 500 * time.Millisecond,
					DeadLetter: func(_ context.Context, d idempotency.DeadLetter) error {
						t.Errorf("%s is given up: %v", d.Message.Key.ID, d.Reason)
						return nil
					},
				})
				var running sync.WaitGroup
				for w := range workers {
					running.Go(func() {
						for n := w; n < messages; n += workers {
							m := after(message(fmt.Sprint(n)), pending[n])
							pending[n] = run(p, m, handler(m.Key.ID))
						}
					})
				}
				running.Wait()
			}
			var lost atomic.Int64
			all("cache_statement", func(p *idempotency.Processor, m idempotency.Message, handler idempotency.Handler) *idempotency.Pending {
				r, err := p.Run(limited(t), m, handler)
				if !r.Done() {
					lost.Add(1)
				}
				if text := fmt.Sprint(err); !r.Done() && !strings.Contains(text, "default_query_exec_mode=exec") && !strings.Contains(text, "deadline") {
					t.Errorf("%s is %s, without a remedy: %s", m.Key.ID, r.Disposition, text)
				}
				return r.Pending
			})
			t.Logf("in pgx's default mode %d of %d runs failed", lost.Load(), messages)
			if lost.Load() == 0 {
				t.Error("nothing was lost: the pooler keeps prepared statements")
			}
			all("exec", func(p *idempotency.Processor, m idempotency.Message, handler idempotency.Handler) *idempotency.Pending {
				if r, err := p.RunUntilDone(limited(t), m, handler); !r.Done() {
					t.Errorf("%s, in the documented mode, is %s: %v", m.Key.ID, r.Disposition, err)
				}
				return nil
			})
			if n := query[int](t, direct, `SELECT count(DISTINCT id) FROM effects`); n != messages {
				t.Errorf("%d effects, want %d", n, messages)
			}
			if n := query[int](t, direct, `SELECT count(*) FROM effects`); name == "Transactional" && n != messages {
				t.Errorf("%d effects, want %d", n, messages)
			}
		})
	}
}

// Check names the pooler, and the working mode.
func TestCheckFindsAPoolerThatLosesStatements(t *testing.T) {
	for mode, found := range map[string]bool{"cache_statement": true, "describe_exec": true, "exec": false, "cache_describe": false, "simple_protocol": false} {
		t.Run(mode, func(t *testing.T) {
			_, url := throughAPooler(t)
			problems, err := newStore(t, connect(t, url+"?default_query_exec_mode="+mode), postgres.Options{}).Check(limited(t))
			if err != nil {
				t.Fatal(err)
			}
			named := slices.ContainsFunc(problems, func(p storage.Problem) bool {
				return p.Fatal && strings.Contains(p.Text, "pooler") && strings.Contains(p.Remedy, "default_query_exec_mode=exec")
			})
			if named != found {
				t.Errorf("%v", problems)
			}
		})
	}
	t.Run("direct", func(t *testing.T) {
		problems, err := newStore(t, database(t, postgres.Options{}), postgres.Options{}).Check(limited(t))
		if err != nil || slices.ContainsFunc(problems, fatal) {
			t.Errorf("%v, %v", problems, err)
		}
	})
}
