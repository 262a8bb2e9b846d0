package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// NoticePrefix is the prefix of logical messages for connectors, and not for consumers.
const NoticePrefix = "cdc-outbox"

// EmitNotice writes a message with the NoticePrefix to the log, in a transaction of its
// own.
func EmitNotice(ctx context.Context, conn *pgx.Conn, content []byte) error {
	_, err := conn.Exec(ctx, `SELECT pg_logical_emit_message(true, $1::text, $2::bytea)`, NoticePrefix, content)
	switch {
	case err == nil:
		return nil
	case pgsql.State(err) == pgerrcode.InsufficientPrivilege:
		err = failure.Configf("GRANT EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, bytea) TO "+pgx.Identifier{conn.Config().User}.Sanitize()+
			"; (from PostgreSQL 17 on: pg_logical_emit_message(boolean, text, bytea, boolean))", "%w", err)
	}
	return fmt.Errorf("write a message to the log: %w", err)
}
