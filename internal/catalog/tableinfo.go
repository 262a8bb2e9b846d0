package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// TableInfo is a table in the catalogs, without its columns.
type TableInfo struct {
	pg.Table
	OID         uint32
	SchemaOID   uint32
	Partitioned bool
	// ReplicaIdentity tells whether updates and deletes can name the table's rows,
	// by primary key, an index, or the whole row, in each partition, present and
	// future.
	ReplicaIdentity bool
	// Publishable is false for relations logical replication cannot read: views,
	// foreign, unlogged and temporary tables.
	Publishable bool
	// Unlogged: Publishable once logged.
	Unlogged bool
	// Ancestors are the partitioned tables above a partition, the nearest first.
	Ancestors []pg.Table
	// Unpublishable are the partitions, at any depth, that are not Publishable.
	Unpublishable []pg.Table
	// Children are the tables inheriting from the table, at any depth, except
	// partitions. Their rows are seen in the table, and published under the
	// child's name.
	Children []pg.Table
}

// OIDs are those of the tables.
func OIDs(tables []TableInfo) []uint32 {
	oids := make([]uint32, len(tables))
	for i, t := range tables {
		oids[i] = t.OID
	}
	return oids
}

// PartitionedOIDs are those of the partitioned tables.
func PartitionedOIDs(tables []TableInfo) (oids []uint32) {
	for _, t := range tables {
		if t.Partitioned {
			oids = append(oids, t.OID)
		}
	}
	return oids
}

// Only the catalogs are asked: functions such as pg_partition_tree take locks,
// and would wait for a session changing a partition. A partitioned table has no
// rows of its own: unlogged, it does no harm, and SET LOGGED cannot mend it
// before PostgreSQL 18. A table dropped during the query is no reason to stop,
// although unknown to pg_relation_is_publishable.
var tableQuery = `
WITH RECURSIVE named AS (
	SELECT c.oid, c.relnamespace, c.relkind, c.relpersistence, ` + hasIdentity + ` AS identity FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	 WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
), above AS (
	SELECT oid, 0 AS level FROM named
	UNION ALL
	SELECT i.inhparent, above.level + 1
	  FROM above JOIN pg_class c ON c.oid = above.oid AND c.relispartition JOIN pg_inherits i ON i.inhrelid = c.oid
), below AS (
	SELECT i.inhrelid AS oid FROM named JOIN pg_inherits i ON i.inhparent = named.oid
	UNION
	SELECT i.inhrelid FROM below JOIN pg_inherits i ON i.inhparent = below.oid
), relative AS NOT MATERIALIZED (
	SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS name, c.relispartition,
	       c.relkind = 'p' AND c.relpersistence <> 't'
	       OR c.relkind = 'r' AND COALESCE(pg_relation_is_publishable(c.oid), true) AS publishable
	  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
)
SELECT named.oid, named.relnamespace, named.relkind = 'p',
       named.identity, named.relkind::text, named.relpersistence::text,
       (SELECT publishable FROM relative WHERE oid = named.oid),
       ARRAY(SELECT name FROM above JOIN relative USING (oid) WHERE level > 0 ORDER BY level),
       ARRAY(SELECT name FROM below JOIN relative USING (oid) WHERE relispartition AND NOT publishable ORDER BY 1),
       ARRAY(SELECT name FROM below JOIN relative USING (oid) WHERE NOT relispartition ORDER BY 1)
  FROM named`

// ReadTable looks a table up; ok is false where there is none.
func ReadTable(ctx context.Context, conn *pgx.Conn, table pg.Table) (info TableInfo, ok bool, err error) {
	info.Table = table
	var ancestors, unpublishable, children []string
	var kind, persistence string
	err = conn.QueryRow(ctx, tableQuery, table.Schema, table.Name).Scan(&info.OID, &info.SchemaOID, &info.Partitioned,
		&info.ReplicaIdentity, &kind, &persistence, &info.Publishable, &ancestors, &unpublishable, &children)
	if errors.Is(err, pgx.ErrNoRows) {
		return TableInfo{}, false, nil
	}
	for _, relatives := range []struct {
		names []string
		to    *[]pg.Table
	}{{ancestors, &info.Ancestors}, {unpublishable, &info.Unpublishable}, {children, &info.Children}} {
		for _, name := range relatives.names {
			var t pg.Table
			if err == nil {
				t, err = pg.ParseTable(name)
			}
			*relatives.to = append(*relatives.to, t)
		}
	}
	if err != nil {
		return TableInfo{}, false, fmt.Errorf("read table %s: %w", table, err)
	}
	info.Unlogged = persistence == "u" && (kind == "r" || kind == "p")
	return info, true, nil
}

// ReadTables looks up the tables of source.tables; for a missing table the error
// is that of Missing.
func ReadTables(ctx context.Context, conn *pgx.Conn, tables []pg.Table) ([]TableInfo, error) {
	infos := make([]TableInfo, len(tables))
	for i, t := range tables {
		info, ok, err := ReadTable(ctx, conn, t)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, Missing(ctx, conn, t)
		}
		infos[i] = info
	}
	return infos, nil
}
