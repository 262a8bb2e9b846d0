package redis_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/guard"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/redistest"
)

// losses are ways for a server to lose its keys: each returns a client, and what
// makes the keys vanish, once.
var losses = map[string]func(t *testing.T) (client *goredis.Client, forget func()){
	"a restart without persistence": func(t *testing.T) (*goredis.Client, func()) {
		server := redistest.Start(t)
		return server.Client(t), func() { server.Restart(t) }
	},
	"a failover to an empty replica": func(t *testing.T) (*goredis.Client, func()) {
		master := redistest.Start(t)
		replica := redistest.Replica(t, master)
		promote(t, replica) // it has none of what follows
		var f failover
		f.to(master)
		return f.client(t), func() { f.to(replica); master.Kill(t) }
	},
	"keys deleted by hand": func(t *testing.T) (*goredis.Client, func()) {
		server := redistest.Start(t)
		return server.Client(t), func() { do(t, server.Client(t), "FLUSHALL") }
	},
}

// guarded is a consumer with Redis in front and a guard in the database.
type guarded struct {
	*idempotency.Processor
	pool   *pgxpool.Pool
	lost   int
	ran    int
	forget func()
}

func newGuarded(t *testing.T, lose func(t *testing.T) (*goredis.Client, func())) *guarded {
	t.Helper()
	url := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, url, guard.Schema+`; CREATE TABLE effects (id text NOT NULL)`)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	client, forget := lose(t)
	g := &guarded{pool: pool, forget: forget}
	g.Processor, err = idempotency.NewProcessor(idempotency.Options{
		Store: newStore(t, client, redis.Options{}), MaxAttempts: -1,
		Observer: idempotency.Observer{LeaseLost: func(idempotency.Loss) { g.lost++ }},
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// apply is a handler whose effect a repetition would double if there were no
// guard.
func (g *guarded) apply(ctx context.Context) ([]byte, error) {
	g.ran++
	return nil, pgx.BeginFunc(ctx, g.pool, func(tx pgx.Tx) error {
		first, err := guard.Applied{}.First(ctx, guard.PGX(tx), key.Scope, key.ID)
		if err != nil || !first {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO effects VALUES ($1)`, key.ID)
		return err
	})
}

func (g *guarded) deliver(t *testing.T, h idempotency.Handler, want idempotency.Disposition) {
	t.Helper()
	if result, err := g.Run(t.Context(), idempotency.Message{Key: key}, h); result.Disposition != want {
		t.Errorf("delivered: %s, %v; want %s", result.Disposition, err, want)
	}
}

// wantOnce asserts that the handler ran so often, and had its effect once.
func (g *guarded) wantOnce(t *testing.T, ran int) {
	t.Helper()
	var effects int
	if err := g.pool.QueryRow(t.Context(), `SELECT count(*) FROM effects`).Scan(&effects); err != nil {
		t.Fatal(err)
	}
	if g.ran != ran || effects != 1 {
		t.Errorf("%d effects of %d runs, want 1 of %d", effects, g.ran, ran)
	}
}

// What Redis forgets is run again, and the guard in the database says no.
func TestGuardBehindAServerThatForgets(t *testing.T) {
	for name, lose := range losses {
		t.Run(name+" after the completion", func(t *testing.T) {
			g := newGuarded(t, lose)
			g.deliver(t, g.apply, idempotency.Handled)
			g.deliver(t, g.apply, idempotency.Skipped)
			g.forget()
			g.deliver(t, g.apply, idempotency.Handled)
			g.wantOnce(t, 2)
		})
		t.Run(name+" between effect and completion", func(t *testing.T) {
			g := newGuarded(t, lose)
			g.deliver(t, func(ctx context.Context) ([]byte, error) {
				if _, err := g.apply(ctx); err != nil {
					return nil, err
				}
				g.forget()
				g.deliver(t, g.apply, idempotency.Handled) // elsewhere
				return nil, nil
			}, idempotency.Lost)
			if g.lost != 1 {
				t.Errorf("%d losses are told, want 1", g.lost)
			}
			g.wantOnce(t, 2)
		})
	}
}
