package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// ErrFenced says that somebody with a greater fencing number wrote since. Give
// up, and roll the transaction back.
var ErrFenced = errors.New("fenced off: a later holder of the lease was here")

// Mark is a growing column of type bigint: a version or a fencing number. Mark
// is a value, safe for concurrent use.
type Mark struct {
	// Table is table or schema.table. Names are taken as they are.
	Table string
	// Key is the row's identifying column.
	Key string
	// Column is the mark. NULL is below every number.
	Column string
}

// Validate returns an error naming each fault. The other methods do so, too,
// but for each message: call Validate when the service starts.
func (m Mark) Validate() error {
	return named(map[string]string{"Table": m.Table, "Key": m.Key, "Column": m.Column})
}

// Advance raises the row's mark to the version of an event. True means that the
// event is the newest so far and is to be applied; false that the same or a newer
// event was applied before. A missing row is ErrNoRow. After true the row is
// locked until the transaction ends.
//
// Versions passed over come back as false, so the event must carry the whole
// state, not a difference.
func (m Mark) Advance(ctx context.Context, tx Tx, id any, version int64) (bool, error) {
	advanced, err := m.raise(ctx, tx, id, version, "<")
	if err != nil {
		return false, fmt.Errorf("advance row %v of %s to version %d: %w", id, m.Table, version, err)
	}
	return advanced, nil
}

// Fence raises the row's mark to a fencing number (see idempotency.FenceFrom; 0
// is none, and errUnusable), or returns ErrFenced if the mark is greater already.
// The same number may come any number of times: the holder goes on. A missing row
// is ErrNoRow. After nil the row is locked until the transaction ends, so that
// later holders write later.
func (m Mark) Fence(ctx context.Context, tx Tx, id any, fence int64) error {
	if fence <= 0 {
		return fmt.Errorf("fence row %v of %s: %w: %d is no fencing number: the handler runs without a claim (FenceFrom returned false)",
			id, m.Table, errUnusable, fence)
	}
	raised, err := m.raise(ctx, tx, id, fence, "<=")
	if err == nil && !raised {
		err = ErrFenced
	}
	if err != nil {
		return fmt.Errorf("fence row %v of %s with %d: %w", id, m.Table, fence, err)
	}
	return nil
}

// raise sets the mark if it is NULL or compares with the value as asked.
func (m Mark) raise(ctx context.Context, tx Tx, id any, value int64, compare string) (bool, error) {
	if err := m.Validate(); err != nil {
		return false, err
	}
	raised, err := tx.exec(ctx, fmt.Sprintf(`UPDATE %s SET %s = $2 WHERE %s = $1 AND (%[2]s IS NULL OR %[2]s %[4]s $2)`,
		table(m.Table), pgsql.Name(m.Column), pgsql.Name(m.Key), compare), id, value)
	if err != nil || raised > 0 {
		return raised > 0, err
	}
	// Whether the comparison still holds, after the commits of others.
	var rows, due int
	err = tx.query(ctx, fmt.Sprintf(`SELECT count(*), count(*) FILTER (WHERE %s IS NULL OR %[1]s %[4]s $2) FROM %[2]s WHERE %[3]s = $1`,
		pgsql.Name(m.Column), table(m.Table), pgsql.Name(m.Key), compare), id, value).Scan(&rows, &due)
	switch {
	case err != nil:
		return false, err
	case rows == 0:
		return false, ErrNoRow
	case due > 0:
		return false, errSuppressed
	}
	return false, nil
}
