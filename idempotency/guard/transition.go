package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// Transition is a change of status a message causes, such as an order's from
// PENDING to PAID. Transition is a value, safe for concurrent use.
type Transition struct {
	// Table is table or schema.table. Names are taken as they are.
	Table string
	// Key is the row's identifying column.
	Key string
	// Status is the column with the status: text, or an enum.
	Status string
	// From are the states where the change is due; required.
	From []string
	// To is the new state.
	To string
	// Beyond are states a row reaches only through To, such as SHIPPED beyond
	// PAID: there, the change is a repetition.
	Beyond []string
}

// StateError reports a row in a state neither before nor after a Transition.
type StateError struct {
	Table string
	ID    any
	// Present is the row's state; empty for NULL.
	Present string
	// To is where the transition leads.
	To string
}

// Error names the row and both states.
func (e *StateError) Error() string {
	return fmt.Sprintf("row %v of %s is %q, which does not lead to %q", e.ID, e.Table, e.Present, e.To)
}

// Apply changes the row's status. True means changed now, false changed before.
// A row in any other state is a *StateError, a missing row ErrNoRow. Apply
// takes a single statement, and a second to tell errors apart; afterwards the
// row is locked until the end of the transaction.
func (t Transition) Apply(ctx context.Context, tx Tx, id any) (bool, error) {
	fail := func(err error) (bool, error) {
		return false, fmt.Errorf("move row %v of %s to %s: %w", id, t.Table, t.To, err)
	}
	if err := t.Validate(); err != nil {
		return fail(err)
	}
	args := []any{id, t.To}
	var from strings.Builder
	for i, state := range t.From {
		// As parameters by themselves they get the column's type; an array would not.
		fmt.Fprintf(&from, "%s$%d", strings.Repeat(", ", min(i, 1)), i+3)
		args = append(args, state)
	}
	update := fmt.Sprintf(`UPDATE %s SET %s = $2 WHERE %s = $1 AND %[2]s IN (%[4]s)`,
		table(t.Table), pgsql.Name(t.Status), pgsql.Name(t.Key), &from)
	look := fmt.Sprintf(`SELECT coalesce(max(status), ''), count(*) FROM (
		SELECT %s::text AS status FROM %s WHERE %s = $1 FOR UPDATE) AS present`,
		pgsql.Name(t.Status), table(t.Table), pgsql.Name(t.Key))
	for locked := false; ; locked = true {
		changed, err := tx.exec(ctx, update, args...)
		if err != nil {
			return fail(err)
		}
		if changed > 0 {
			return true, nil
		}
		var present string
		var rows int64
		if err := tx.query(ctx, look, id).Scan(&present, &rows); err != nil {
			return fail(err)
		}
		switch {
		case rows == 0:
			return fail(ErrNoRow)
		case present == t.To || slices.Contains(t.Beyond, present):
			return false, nil
		case !slices.Contains(t.From, present):
			return false, &StateError{Table: t.Table, ID: id, Present: present, To: t.To}
		}
		if locked {
			return fail(errSuppressed)
		}
		// Somebody changed the row in between. From now on the row is locked.
	}
}

// Validate returns an error naming each fault. Apply does so, too, but for each
// message: call Validate when the service starts.
func (t Transition) Validate() error {
	if err := named(map[string]string{"Table": t.Table, "Key": t.Key, "Status": t.Status, "To": t.To}); err != nil {
		return err
	}
	switch {
	case len(t.From) == 0:
		return fmt.Errorf("%w: From is empty: no row would ever change", errUnusable)
	case slices.Contains(t.From, t.To):
		return fmt.Errorf("%w: To, %q, is among From: every repetition would count as a change", errUnusable, t.To)
	case slices.Contains(t.Beyond, t.To):
		return fmt.Errorf("%w: To, %q, is among Beyond: that goes without saying", errUnusable, t.To)
	}
	for _, state := range t.From {
		if slices.Contains(t.Beyond, state) {
			return fmt.Errorf("%w: %q is among From and Beyond: it cannot be both before the change and behind it", errUnusable, state)
		}
	}
	return nil
}
