package admin

import (
	"context"

	"github.com/jackc/pgerrcode"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
)

// planPolling plans to drop the triggers; columns, marks and index stay with
// the table. planPolling refuses while somebody is publishing.
func (t *teardown) planPolling(ctx context.Context) error {
	return t.polled(ctx, func(table *poll.Table) error {
		holders, err := poll.ReadLanes(ctx, t.conn, table)
		if err != nil {
			return err
		}
		if len(holders) > 0 {
			return failure.Configf("stop the connector first", "table %s is being published from by pid %d", table.Name, holders[0].PID)
		}
		there, err := table.Notifies(ctx, t.conn, t.cfg.Source.Poll.Notify)
		if err != nil {
			return err
		}
		t.plan = append(t.plan, object{"trigger", table.Name.String(), there, func(ctx context.Context) error {
			err := t.execute(ctx, table.DropNotifySQL()...)
			if pgsql.State(err) == pgerrcode.InsufficientPrivilege {
				return failure.Configf("run teardown as the table's owner (source.url)", "%w", err)
			}
			return err
		}})
		if table.Index != "" {
			t.kept = append(t.kept, Step{Object: "index", Name: table.Index, Action: "kept"})
		}
		return nil
	})
}
