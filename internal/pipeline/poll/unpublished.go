package poll

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/catchup"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// Unpublished are the table's unpublished rows, for a wait until they are
// published.
func (t *Table) Unpublished(ctx context.Context, conn *pgx.Conn) (catchup.Rows, error) {
	key := t.Order.Columns[0]
	rows := catchup.Rows{Table: t.Name.Quoted(), Pending: t.pending, Key: pgsql.Name(key)}
	err := conn.QueryRow(ctx, `SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = $1 AND attname = $2`, t.OID, key).Scan(&rows.KeyType)
	if err != nil {
		return rows, fmt.Errorf("read the type of column %s of %s: %w", rows.Key, t.Name, classify(err, t))
	}
	return rows, nil
}
