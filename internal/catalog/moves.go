package catalog

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// moves are the ways of rows into another partition of their table. PostgreSQL
// then writes a deletion and an insertion.
type moves struct {
	// keys are the changeable columns of the partition keys at all levels: neither
	// a time nor the event id.
	keys []string
	// full are the default partitions with rows, according to the statistics.
	full []string
	// known: a deletion tells the event id, by the replica identity of each
	// partition.
	known bool
}

// The columns of a partition key, also those in its expressions, depend on
// their table. The statistics are asked for rows, as they need neither a lock
// nor a privilege.
var movesQuery = `
WITH RECURSIVE tree AS (
	SELECT c.oid, c.relkind, c.relreplident, false AS rest FROM pg_class c WHERE c.oid = $1
	UNION ALL
	SELECT c.oid, c.relkind, c.relreplident, tree.rest OR c.oid = p.partdefid
	  FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid JOIN pg_class c ON c.oid = i.inhrelid
	  LEFT JOIN pg_partitioned_table p ON p.partrelid = tree.oid
)
SELECT ARRAY(SELECT DISTINCT a.attname::text
               FROM tree JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = tree.oid AND d.objsubid > 0
                AND d.refclassid = 'pg_class'::regclass AND d.refobjid = tree.oid AND d.refobjsubid = 0 AND d.deptype = 'i'
               JOIN pg_attribute a ON a.attrelid = tree.oid AND a.attnum = d.objsubid
               JOIN pg_type t ON t.oid = a.atttypid
              WHERE tree.relkind = 'p' AND a.attname <> $2
                AND COALESCE(NULLIF(t.typbasetype, 0), t.oid) NOT IN ('timestamptz'::regtype, 'timestamp'::regtype, 'date'::regtype)
              ORDER BY 1),
       ARRAY(SELECT format('%I.%I', n.nspname, c.relname)
               FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace n ON n.oid = c.relnamespace
              WHERE tree.rest AND tree.relkind = 'r' AND pg_stat_get_live_tuples(tree.oid) > 0 ORDER BY 1),
       NOT EXISTS (SELECT FROM tree JOIN pg_attribute a ON a.attrelid = tree.oid AND a.attname = $2
              WHERE tree.relkind = 'r' AND tree.relreplident <> 'f' AND NOT EXISTS (
                    SELECT FROM pg_index x WHERE x.indrelid = tree.oid AND x.indimmediate AND x.indisvalid AND a.attnum = ANY (x.indkey::int2[])
                       AND CASE tree.relreplident WHEN 'd' THEN x.indisprimary ELSE x.indisreplident END))`

func readMoves(ctx context.Context, conn *pgx.Conn, t TableInfo, id string) (m moves, err error) {
	err = conn.QueryRow(ctx, movesQuery, t.OID, id).Scan(&m.keys, &m.full, &m.known)
	if err != nil {
		return m, fmt.Errorf("read the partitions of %s: %w", t.Table, err)
	}
	return m, nil
}

// WarnOfMoves returns an error with a remedy if rows of the table, which may be
// partitioned, may move to another partition and would be taken for new ones:
// nothing in the stream tells that they were there before. tables are all that
// are read, id is the column of the event id. The second error is the query's.
func WarnOfMoves(ctx context.Context, conn *pgx.Conn, p Publication, t TableInfo, id string, tables []pg.Table) (warning, err error) {
	if !t.Partitioned {
		return nil, nil
	}
	m, err := readMoves(ctx, conn, t, id)
	if err != nil || p.Delete && m.known || len(m.keys)+len(m.full) == 0 {
		return nil, err
	}
	remedy, err := tellMoves(ctx, conn, p, t, m.known, tables)
	if err != nil {
		return nil, err
	}
	blind := fmt.Sprintf("publication %q does not publish deletions", p.Name)
	if p.Delete {
		blind = fmt.Sprintf("the replica identity of a partition has no column %q", id)
	}
	return failure.Configf(remedy+" Until then leave rows where they are; see docs/how-to/partitions.md", "rows of table %s that move to another partition are published again, behind later events of their keys, and event.on_update does not see it, as %s; they move %s",
		t.Table, blind, m.when()), nil
}

// when describes the cause of moves.
func (m moves) when() string {
	var when []string
	if len(m.keys) > 0 {
		when = append(when, "when a column of the partition key changes: "+strings.Join(m.keys, ", "))
	}
	if len(m.full) > 0 {
		when = append(when, "when somebody makes a partition for what is in the default one: "+strings.Join(m.full, ", "))
	}
	return strings.Join(when, "; ")
}

// tellMoves is the way to have deletions in the stream, with the id of the row.
// It must take nothing from the application: PostgreSQL refuses the deletion of
// a row without identity from then on.
func tellMoves(ctx context.Context, conn *pgx.Conn, p Publication, t TableInfo, known bool, tables []pg.Table) (string, error) {
	var steps []string
	if !t.ReplicaIdentity || !known {
		steps = append(steps, "give table "+t.Quoted()+", and each of its partitions, a primary key with the event id that is not DEFERRABLE and has no generated column")
	}
	publishing := p
	publishing.Delete = true
	without, err := WithoutIdentity(ctx, conn, publishing, tables)
	if err != nil {
		return "", err
	}
	if len(without) > 0 {
		steps = append(steps, "give these tables of the publication a primary key, as PostgreSQL would refuse to delete their rows otherwise: "+strings.Join(without, ", "))
	}
	if !p.Delete {
		steps = append(steps, behindWriters("ALTER PUBLICATION "+pgsql.Name(p.Name)+" SET (publish = '"+strings.Join(publishing.Operations(), ", ")+"')", tables...))
	}
	return strings.TrimSuffix(strings.Join(steps, "; then "), ";") + ".", nil
}
