package wal

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// firstUserOID is FirstNormalObjectId: the OIDs below it belong to built-in
// objects and are the same on every server.
const firstUserOID = 16384

// TableInfo is what the catalogs know about a table apart from its columns.
type TableInfo struct {
	Table
	OID         uint32
	Partitioned bool
	// PartitionOf is the parent's name, as SQL text; "" where there is none.
	PartitionOf string
	// ReplicaIdentity tells whether the table's rows can be named in an update
	// or delete: by primary key, an index, or the whole row.
	ReplicaIdentity bool
	// Publishable is false for what logical replication cannot read: views,
	// foreign, unlogged and temporary tables.
	Publishable bool
}

// ReadTable looks a table up; ok is false where there is none.
func ReadTable(ctx context.Context, conn *pgx.Conn, table Table) (info TableInfo, ok bool, err error) {
	info.Table = table
	err = conn.QueryRow(ctx, `
		SELECT c.oid, c.relkind = 'p',
		       COALESCE((SELECT inhparent::regclass::text FROM pg_inherits i
		                  WHERE i.inhrelid = c.oid AND c.relispartition), ''),
		       CASE c.relreplident
		            WHEN 'f' THEN true
		            WHEN 'n' THEN false
		            WHEN 'd' THEN EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indisprimary)
		            ELSE EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indisreplident)
		       END,
		       c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
		  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		 WHERE n.nspname = $1 AND c.relname = $2
		   AND c.relkind IN ('r', 'p', 'v', 'm', 'f')`,
		table.Schema, table.Name,
	).Scan(&info.OID, &info.Partitioned, &info.PartitionOf, &info.ReplicaIdentity, &info.Publishable)
	if errors.Is(err, pgx.ErrNoRows) {
		return TableInfo{}, false, nil
	}
	if err != nil {
		return TableInfo{}, false, fmt.Errorf("read table %s: %w", table, err)
	}
	return info, true, nil
}

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
func ReadColumns(ctx context.Context, conn *pgx.Conn, table Table) (rel *Relation, ok bool, err error) {
	info, ok, err := ReadTable(ctx, conn, table)
	if err != nil || !ok {
		return nil, false, err
	}
	rows, err := conn.Query(ctx, columnsQuery, info.OID)
	if err != nil {
		return nil, false, fmt.Errorf("read columns of %s: %w", table, err)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Column, err error) {
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
	return &Relation{OID: info.OID, Namespace: table.Schema, Name: table.Name, Columns: columns}, true, nil
}
