package retention

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// DeleteRows makes a single pass through the first table, with a horizon of
// that transaction id.
func DeleteRows(ctx context.Context, conn *pgx.Conn, o Parts, xmin int64) (int64, error) {
	r := &retention{opts: o}
	return r.deleteRows(ctx, conn, o.Tables[0], horizon{xmin: xmin, lsn: 1})
}
