package guard

import (
	"cmp"
	"context"
	_ "embed" // the DDL
	"fmt"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

//go:embed schema.sql
var schema string

// defaultApplied is the table's name unless Applied names another.
const defaultApplied = "applied_events"

// Applied remembers applied events, in Schema's table. Use it where
// a repetition leaves no trace to be recognised by: balances, counters,
// appended rows. Applied is a value, safe for concurrent use.
type Applied struct {
	// Table is table or schema.table; defaultApplied if empty. Names are taken
	// as they are.
	Table string
}

func (a Applied) name() string { return cmp.Or(a.Table, defaultApplied) }

func (a Applied) table() string { return table(a.name()) }

// Schema returns the SQL creating the table where it is missing: two
// statements, which drivers run in a single call without parameters.
func (a Applied) Schema() string {
	const index = "_applied_at"
	last := a.name()[strings.LastIndexByte(a.name(), '.')+1:]
	return strings.NewReplacer(defaultApplied+index, pgsql.Name(last+index), defaultApplied, a.table()).Replace(schema)
}

// First remembers the event and tells whether the event is new within the
// scope, the consumer's name: two consumers each apply an event once. While
// another transaction applies the same event, First waits for its end.
func (a Applied) First(ctx context.Context, tx Tx, scope, eventID string) (bool, error) {
	inserted, err := tx.exec(ctx, `INSERT INTO `+a.table()+` (scope, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		scope, eventID)
	if err != nil {
		return false, fmt.Errorf("remember event %s/%s: %w", scope, eventID, err)
	}
	return inserted > 0, nil
}

// Forget deletes up to limit events applied longer than age ago, and returns
// how many: commit, and repeat until the result is below limit. The age must
// exceed the time until an event can come again: the topic's retention, if
// somebody may reset the consumer to the beginning. Forget waits for nobody.
func (a Applied) Forget(ctx context.Context, tx Tx, age time.Duration, limit int) (int, error) {
	deleted, err := tx.exec(ctx, `DELETE FROM `+a.table()+` WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM `+a.table()+`
		WHERE applied_at < now() - $1::bigint * interval '1 microsecond'
		LIMIT $2::bigint FOR UPDATE SKIP LOCKED))`, age.Microseconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("forget applied events: %w", err)
	}
	return int(deleted), nil
}
