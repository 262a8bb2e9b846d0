package guard_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/guard"
)

// A guard that could never work, or would always pass, says so.
func TestGuardsThatCannotWork(t *testing.T) {
	good := guard.Transition{Table: "orders", Key: "id", Status: "status", From: []string{"PENDING"}, To: "PAID", Beyond: []string{"SHIPPED"}}
	each(t, []string{`CREATE TABLE orders AS SELECT 1 AS id, 'PENDING' AS status, NULL::bigint AS fence`}, func(t *testing.T, pool *pgxpool.Pool, do do) {
		for name, alter := range map[string]func(*guard.Transition){
			"no table":             func(g *guard.Transition) { g.Table = "" },
			"no key":               func(g *guard.Transition) { g.Key = "" },
			"no status":            func(g *guard.Transition) { g.Status = "" },
			"no To":                func(g *guard.Transition) { g.To = "" },
			"empty From":           func(g *guard.Transition) { g.From = nil },
			"To in From":           func(g *guard.Transition) { g.From = []string{"PENDING", "PAID"} },
			"To in Beyond":         func(g *guard.Transition) { g.Beyond = []string{"PAID"} },
			"From and Beyond meet": func(g *guard.Transition) { g.Beyond = []string{"PENDING"} },
		} {
			g := good
			alter(&g)
			err := do(t.Context(), func(tx guard.Tx) error { _, err := g.Apply(t.Context(), tx, 1); return err })
			if !says(err, "the guard cannot work") {
				t.Errorf("%s: %v", name, err)
			}
			if err := g.Validate(); !says(err, "the guard cannot work") {
				t.Errorf("%s, before the first message: %v", name, err)
			}
		}
		mark := guard.Mark{Table: "orders", Key: "id", Column: "fence"}
		if err := errors.Join(good.Validate(), mark.Validate()); err != nil {
			t.Error(err)
		}
		for _, g := range []guard.Mark{{Key: "id", Column: "fence"}, {Table: "orders", Column: "fence"}, {Table: "orders", Key: "id"}} {
			if err := g.Validate(); !says(err, "the guard cannot work") {
				t.Errorf("%+v: %v", g, err)
			}
		}
		for _, fence := range []int64{0, -1} { // 0 is FenceFrom's without a lease
			err := do(t.Context(), func(tx guard.Tx) error { return mark.Fence(t.Context(), tx, 1, fence) })
			if !says(err, "the guard cannot work") {
				t.Errorf("fence %d: %v", fence, err)
			}
		}
		err := do(t.Context(), func(tx guard.Tx) error {
			_, err := guard.Mark{Table: "orders"}.Advance(t.Context(), tx, 1, 1)
			return err
		})
		if !says(err, "the guard cannot work") {
			t.Error(err)
		}
		if got := value[string](t, pool, `SELECT status FROM orders`); got != "PENDING" {
			t.Errorf("the row is %s", got)
		}
	})
}

// A trigger returning NULL makes an update do nothing, and say so to nobody.
func TestAnUpdateThatTheDatabaseSuppresses(t *testing.T) {
	each(t, []string{
		`CREATE TABLE orders AS SELECT 1 AS id, 'PENDING' AS status, NULL::bigint AS version`,
		`CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
		`CREATE TRIGGER suppress BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION suppress()`,
	}, func(t *testing.T, _ *pgxpool.Pool, do do) {
		err := do(limited(t), func(tx guard.Tx) error {
			_, err := guard.Transition{Table: "orders", Key: "id", Status: "status", From: []string{"PENDING"}, To: "PAID"}.Apply(limited(t), tx, 1)
			return err
		})
		if !says(err, "the database did not change the row") {
			t.Errorf("transition: %v", err)
		}
		mark := guard.Mark{Table: "orders", Key: "id", Column: "version"}
		err = do(limited(t), func(tx guard.Tx) error { _, err := mark.Advance(limited(t), tx, 1, 1); return err })
		if !says(err, "the database did not change the row") {
			t.Errorf("mark: %v", err)
		}
	})
}

func says(err error, what string) bool { return err != nil && strings.Contains(err.Error(), what) }
