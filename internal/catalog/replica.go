package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Subscribed returns the enabled subscriptions writing into the table: a slot here
// would have the same rows, too.
func Subscribed(ctx context.Context, conn *pgx.Conn, table pg.Table) ([]string, error) {
	rows, _ := conn.Query(ctx, `
		SELECT s.subname::text FROM pg_subscription s JOIN pg_subscription_rel r ON r.srsubid = s.oid
		 WHERE s.subenabled AND r.srrelid = to_regclass($1)
		   AND s.subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())
		 ORDER BY 1`, table.Quoted())
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for subscriptions to table %s: %w", table, err)
	}
	return names, nil
}

// SequencesBehind returns, for each sequence of the table about to repeat a
// value, the statement against the repetition. Logical replication does not move sequences
// on. A sequence the role may not see is left out.
func SequencesBehind(ctx context.Context, conn *pgx.Conn, table pg.Table) (statements []string, err error) {
	type sequence struct {
		Column, Name string
		Last         *int64
	}
	rows, _ := conn.Query(ctx, `
		SELECT a.attname::text, s.oid::regclass::text, pg_sequence_last_value(s.oid)
		  FROM pg_depend d
		  JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
		  JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
		 WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
		   AND d.refobjid = to_regclass($1)
		   AND CASE WHEN s.relkind = 'S' THEN has_sequence_privilege(s.oid, 'USAGE, SELECT') END`, table.Quoted())
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sequence])
	if err != nil {
		return nil, fmt.Errorf("read the sequences of table %s: %w", table, err)
	}
	for _, s := range all {
		column := pgsql.Name(s.Column)
		var behind bool
		err := conn.QueryRow(ctx, `SELECT COALESCE(max(`+column+`)::numeric > COALESCE($1::bigint, 0), false) FROM `+table.Quoted(), s.Last).Scan(&behind)
		if err != nil {
			return nil, fmt.Errorf("compare sequence %s with table %s: %w", s.Name, table, err)
		}
		if behind {
			statements = append(statements, "SELECT setval("+pgsql.Literal(s.Name)+", (SELECT max("+column+") FROM "+table.Quoted()+"));")
		}
	}
	return statements, nil
}
