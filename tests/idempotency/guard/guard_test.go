package guard_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/guard"
)

const orders = `
	CREATE TYPE "Order Status" AS ENUM ('PENDING', 'HELD', 'PAID', 'SHIPPED', 'CANCELLED');
	CREATE SCHEMA "My ""Shop""";
	CREATE TABLE "My ""Shop"""."The Orders" ("Order" bigint PRIMARY KEY, "Status" "Order Status", "Version" bigint);`

var paid = guard.Transition{
	Table: `My "Shop".The Orders`, Key: "Order", Status: "Status",
	From: []string{"PENDING", "HELD"}, To: "PAID", Beyond: []string{"SHIPPED"},
}

func TestTransition(t *testing.T) {
	insert := `INSERT INTO "My ""Shop"""."The Orders" VALUES (1, 'PENDING'), (2, 'HELD'), (3, 'PAID'), (4, 'SHIPPED'), (5, 'CANCELLED'), (6, NULL)`
	each(t, []string{orders, insert}, func(t *testing.T, pool *pgxpool.Pool, do do) {
		for _, c := range []struct {
			id   int64
			want string
		}{
			{1, "true"}, {1, "false"}, {2, "true"}, {3, "false"}, {4, "false"},
			{5, `row 5 of My "Shop".The Orders is "CANCELLED", which does not lead to "PAID"`},
			{6, `row 6 of My "Shop".The Orders is "", which does not lead to "PAID"`},
			{7, `move row 7 of My "Shop".The Orders to PAID: there is no such row`},
		} {
			var got string
			err := do(limited(t), func(tx guard.Tx) error {
				changed, err := paid.Apply(limited(t), tx, c.id)
				got = answer(changed, err)
				return err
			})
			if got != c.want {
				t.Errorf("order %d: %s, want %s", c.id, got, c.want)
			}
			if errors.Is(err, guard.ErrNoRow) != (c.id == 7) {
				t.Errorf("order %d: %v", c.id, err)
			}
			var state *guard.StateError
			if errors.As(err, &state) && state.Present != map[int64]string{5: "CANCELLED"}[c.id] {
				t.Errorf("order %d: present state %q", c.id, state.Present)
			}
		}
		if n := value[int](t, pool, `SELECT count(*) FROM "My ""Shop"""."The Orders" WHERE "Status" = 'PAID'`); n != 3 {
			t.Errorf("%d orders are paid, want 3", n)
		}
	})
}

// The handler of a single message runs a thousand times, thirty at a time: one
// transition, and one event, whatever the transactions' ends.
func TestE2EThousandRunsOneTransition(t *testing.T) {
	insert := `INSERT INTO "My ""Shop"""."The Orders" VALUES (1, 'PENDING')`
	each(t, []string{orders, guard.Applied{}.Schema(), insert}, func(t *testing.T, pool *pgxpool.Pool, do do) {
		var mu sync.Mutex
		changes, given, failing := 0, 0, errors.New("the handler fails after its writes")
		handle := func() error {
			return do(limited(t), func(tx guard.Tx) error {
				changed, err := paid.Apply(limited(t), tx, int64(1))
				if err != nil || !changed {
					return err
				}
				// The outgoing event: a separate row each time.
				if _, err := (guard.Applied{}).First(limited(t), tx, "event", time.Now().String()); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				if given++; given <= 3 {
					return failing
				}
				changes++
				return nil
			})
		}
		var running sync.WaitGroup
		for worker := range 30 {
			running.Go(func() {
				for run := worker; run < 1000; run += 30 {
					if err := handle(); err != nil && !errors.Is(err, failing) {
						t.Error(err)
					}
				}
			})
		}
		running.Wait()
		if n := value[int](t, pool, `SELECT count(*) FROM applied_events`); n != 1 || changes != 1 {
			t.Errorf("%d events and %d transitions of 1000 runs", n, changes)
		}
	})
}

func TestMark(t *testing.T) {
	mark := guard.Mark{Table: `My "Shop".The Orders`, Key: "Order", Column: "Version"}
	insert := `INSERT INTO "My ""Shop"""."The Orders" VALUES (1, 'PENDING', NULL)`
	each(t, []string{orders, insert}, func(t *testing.T, pool *pgxpool.Pool, do do) {
		advance := func(id, version int64) (got string) {
			_ = do(limited(t), func(tx guard.Tx) error {
				ok, err := mark.Advance(limited(t), tx, id, version)
				got = answer(ok, err)
				return err
			})
			return got
		}
		fence := func(id, fence int64) error {
			return do(limited(t), func(tx guard.Tx) error { return mark.Fence(limited(t), tx, id, fence) })
		}
		for _, c := range []struct {
			version int64
			want    string
		}{{-5, "true"}, {3, "true"}, {3, "false"}, {2, "false"}, {7, "true"}} {
			if got := advance(1, c.version); got != c.want {
				t.Errorf("version %d: %s, want %s", c.version, got, c.want)
			}
		}
		if got := advance(2, 1); !strings.Contains(got, "no such row") {
			t.Errorf("missing row: %s", got)
		}
		for _, c := range []struct {
			fence int64
			want  error
		}{{8, nil}, {8, nil}, {7, guard.ErrFenced}, {9, nil}, {8, guard.ErrFenced}} {
			if err := fence(1, c.fence); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("fence %d: %v, want %v", c.fence, err, c.want)
			}
		}
		if err := fence(2, 1); !errors.Is(err, guard.ErrNoRow) {
			t.Errorf("missing row: %v", err)
		}
		if v := value[int64](t, pool, `SELECT "Version" FROM "My ""Shop"""."The Orders"`); v != 9 {
			t.Errorf("the mark is %d, want 9", v)
		}
	})
}

func TestApplied(t *testing.T) {
	here := guard.Applied{Table: `The "Shop".Applied Here`}
	statements := []string{
		guard.Applied{}.Schema(), guard.Applied{}.Schema(),
		`CREATE SCHEMA "The ""Shop"""`, here.Schema(), here.Schema(),
		`CREATE TABLE balance AS SELECT 0 AS amount`,
	}
	each(t, statements, func(t *testing.T, pool *pgxpool.Pool, do do) {
		first := func(a guard.Applied, scope, id string) bool {
			var ok bool
			err := do(limited(t), func(tx guard.Tx) (err error) {
				ok, err = a.First(limited(t), tx, scope, id)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		for _, c := range []struct {
			table     guard.Applied
			scope, id string
			want      bool
		}{
			{guard.Applied{}, "billing", "1", true}, {guard.Applied{}, "billing", "1", false},
			{guard.Applied{}, "billing", "2", true}, {guard.Applied{}, "shipping", "1", true},
			{here, "billing", "1", true}, {here, "billing", "1", false},
		} {
			if got := first(c.table, c.scope, c.id); got != c.want {
				t.Errorf("%v: first %t", c, got)
			}
		}

		if _, err := pool.Exec(limited(t), `UPDATE applied_events SET applied_at = now() - interval '2 hours' WHERE scope = 'billing'`); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{1, 1, 0} {
			err := do(limited(t), func(tx guard.Tx) error {
				n, err := guard.Applied{}.Forget(limited(t), tx, time.Hour, 1)
				if n != want {
					t.Errorf("forgot %d, want %d", n, want)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if !first(guard.Applied{}, "billing", "1") || first(guard.Applied{}, "shipping", "1") {
			t.Error("what is old is still known, or what is new is not")
		}
		for name, want := range map[string]int{`"The ""Shop"""."Applied Here_applied_at"`: 1, `applied_events_applied_at`: 1, `applied_events`: 0} {
			if n := value[int](t, pool, `SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('`+name+`')`); n != want {
				t.Errorf("%d indexes %s, want %d", n, name, want)
			}
		}
	})
}

// Errors of the transaction come through, wrapped.
func TestErrors(t *testing.T) {
	each(t, []string{orders}, func(t *testing.T, _ *pgxpool.Pool, do do) {
		broken := guard.Transition{Table: "no.such", Key: "a", Status: "b", From: []string{"c"}, To: "d"}
		mark := guard.Mark{Table: "no.such", Key: "a", Column: "b"}
		applied := guard.Applied{Table: "no.such"}
		for name, call := range map[string]func(context.Context, guard.Tx) error{
			"apply":   func(ctx context.Context, tx guard.Tx) error { _, err := broken.Apply(ctx, tx, 1); return err },
			"advance": func(ctx context.Context, tx guard.Tx) error { _, err := mark.Advance(ctx, tx, 1, 1); return err },
			"fence":   func(ctx context.Context, tx guard.Tx) error { return mark.Fence(ctx, tx, 1, 1) },
			"first":   func(ctx context.Context, tx guard.Tx) error { _, err := applied.First(ctx, tx, "a", "b"); return err },
			"forget":  func(ctx context.Context, tx guard.Tx) error { _, err := applied.Forget(ctx, tx, 1, 1); return err },
		} {
			err := do(limited(t), func(tx guard.Tx) error { return call(limited(t), tx) })
			if err == nil || !strings.Contains(err.Error(), `"no.such" does not exist`) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
