package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Retained describes a table to retention and its operator.
type Retained struct {
	Exists, Partitioned, HasDefault bool
	ByTime                          bool   // partitioned by ranges of a single time
	Column                          string // the type of the column given; empty without such a column
	MayDelete, MayOwn, MayCreate    bool
	Owner                           string
	Bytes                           int64
	Partitions                      int
}

const retainedQuery = `
SELECT c.relkind = 'p',
       EXISTS (SELECT FROM pg_partitioned_table p WHERE p.partrelid = c.oid AND p.partdefid <> 0),
       COALESCE((SELECT p.partstrat = 'r' AND p.partnatts = 1 AND (p.partattrs[0] = 0 OR a.atttypid IN ('timestamptz'::regtype, 'timestamp'::regtype, 'date'::regtype))
                   FROM pg_partitioned_table p LEFT JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
                  WHERE p.partrelid = c.oid), false),
       COALESCE((SELECT format_type(a.atttypid, NULL) FROM pg_attribute a
                  WHERE a.attrelid = c.oid AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped), ''),
       has_schema_privilege(c.relnamespace, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'DELETE'),
       pg_has_role(c.relowner, 'USAGE'), has_schema_privilege(c.relnamespace, 'CREATE'),
       pg_get_userbyid(c.relowner)::text,
       (SELECT sum(pg_total_relation_size(relid)) FROM (
           SELECT c.oid AS relid UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = c.oid) parts)::bigint,
       (SELECT count(*) FROM pg_inherits WHERE inhparent = c.oid)::int
  FROM pg_class c WHERE c.oid = to_regclass($1)`

// ReadRetained reads a table, with the column that says how old a row is.
func ReadRetained(ctx context.Context, conn *pgx.Conn, t pg.Table, column string) (r Retained, err error) {
	rows, _ := conn.Query(ctx, retainedQuery, t.Quoted(), column)
	_, err = pgx.ForEachRow(rows, []any{&r.Partitioned, &r.HasDefault, &r.ByTime, &r.Column, &r.MayDelete, &r.MayOwn, &r.MayCreate, &r.Owner, &r.Bytes, &r.Partitions},
		func() error {
			r.Exists = true
			return nil
		})
	if err != nil {
		return r, fmt.Errorf("look at table %s: %w", t, err)
	}
	return r, nil
}

// ReadDead reads whether autovacuum is off for a table, and the number of dead
// row versions.
func ReadDead(ctx context.Context, conn *pgx.Conn, table uint32) (off bool, dead int64, err error) {
	err = conn.QueryRow(ctx, `
		SELECT current_setting('autovacuum') = 'off'
		       OR COALESCE('autovacuum_enabled=false' = ANY (c.reloptions) OR 'autovacuum_enabled=off' = ANY (c.reloptions), false),
		       pg_stat_get_dead_tuples(c.oid)
		  FROM pg_class c WHERE c.oid = $1`, table).Scan(&off, &dead)
	if err != nil {
		return off, dead, fmt.Errorf("read statistics: %w", err)
	}
	return off, dead, nil
}
