package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/sight"
)

// ReadSight reads the present snapshot, and the standbys that commits wait for,
// in a transaction of its own on an ordinary connection to a primary.
func ReadSight(ctx context.Context, conn *pgx.Conn) (now sight.Snapshot, waits SyncStandbys, err error) {
	var text string
	err = conn.QueryRow(ctx, `SELECT pg_current_snapshot()::text, current_setting('synchronous_standby_names'), current_setting('application_name')`).
		Scan(&text, &waits.Setting, &waits.Application)
	if err == nil {
		now, err = sight.Parse(text)
	}
	if err != nil {
		return sight.Snapshot{}, SyncStandbys{}, fmt.Errorf("read the present snapshot: %w", err)
	}
	return now, waits, nil
}

// Sight is what the held snapshot sees. A slot's snapshot sees commits that still
// wait for a synchronous standby.
func (h *HeldSnapshot) Sight(ctx context.Context) (sight.Snapshot, error) {
	held, _, err := ReadSight(ctx, h.conn)
	return held, err
}
