package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// firstUserOID is FirstNormalObjectId: the OIDs below it belong to built-in
// objects and are the same on every server.
const firstUserOID = 16384

// Generated columns are not in the stream. The identity flag follows
// logicalrep_write_attrs in PostgreSQL's proto.c.
const columnsQuery = `
WITH RECURSIVE base(domain, oid) AS (
	SELECT oid, typbasetype FROM pg_type WHERE typtype = 'd'
	UNION ALL
	SELECT b.domain, t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
)
SELECT a.attname::text,
       a.atttypid,
       COALESCE((SELECT b.oid FROM base b JOIN pg_type t ON t.oid = b.oid
                  WHERE b.domain = a.atttypid AND t.typtype <> 'd'), a.atttypid),
       c.relreplident = 'f' OR EXISTS (
           SELECT FROM pg_index x
            WHERE x.indrelid = c.oid AND a.attnum = ANY (x.indkey::int2[])
              AND CASE c.relreplident WHEN 'd' THEN x.indisprimary WHEN 'i' THEN x.indisreplident ELSE false END)
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
 WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
 ORDER BY a.attnum`

// ReadColumns describes a table as the stream would announce it when its
// publication has no column list; ok is false where there is no such table.
func ReadColumns(ctx context.Context, conn *pgx.Conn, table pg.Table) (rel *pg.Relation, ok bool, err error) {
	info, ok, err := ReadTable(ctx, conn, table)
	if err != nil || !ok {
		return nil, false, err
	}
	rows, err := conn.Query(ctx, columnsQuery, info.OID)
	if err != nil {
		return nil, false, fmt.Errorf("read columns of %s: %w", table, err)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c pg.Column, err error) {
		var base uint32
		err = row.Scan(&c.Name, &c.Type, &base, &c.Identity)
		if base < firstUserOID {
			c.Type = base
		}
		return c, err
	})
	if err != nil {
		return nil, false, fmt.Errorf("read columns of %s: %w", table, err)
	}
	return &pg.Relation{OID: info.OID, Namespace: table.Schema, Name: table.Name, Columns: columns}, true, nil
}
