package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// firstUserOID is FirstNormalObjectId: lower OIDs belong to built-in objects
// and are the same on every server.
const firstUserOID = 16384

// The identity flag follows logicalrep_write_attrs in PostgreSQL's proto.c.
const columnsQuery = `
WITH RECURSIVE base(domain, oid) AS (
	SELECT oid, typbasetype FROM pg_type WHERE typtype = 'd'
	UNION ALL
	SELECT b.domain, t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
)
SELECT a.attname::text,
       a.atttypid,
       b.oid,
       b.typname::text,
       a.atttypmod,
       c.relreplident = 'f' OR EXISTS (
           SELECT FROM pg_index x
            WHERE x.indrelid = c.oid AND a.attnum = ANY (x.indkey::int2[])
              AND CASE c.relreplident WHEN 'd' THEN x.indisprimary WHEN 'i' THEN x.indisreplident ELSE false END),
       a.attgenerated::text,
       a.attnotnull OR t.typtype = 'd' AND t.typnotnull,
       t.typname::text,
       b.typtype::text,
       COALESCE((SELECT string_agg(e.enumlabel, ',' ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid IN (b.oid, b.typelem)), ''),
       CASE WHEN a.attgenerated = '' THEN COALESCE(pg_get_expr(d.adbin, d.adrelid), '') ELSE '' END
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  JOIN pg_type b ON b.oid = COALESCE((SELECT base.oid FROM base JOIN pg_type t ON t.oid = base.oid
                                       WHERE base.domain = a.atttypid AND t.typtype <> 'd'), a.atttypid)
 WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum`

// tableColumn is a column, with the way of generation: "s" for stored, "v" for
// virtual (18), "" for not at all.
type tableColumn struct {
	pg.Column
	generated string
}

// ReadColumns describes a table with all columns, as for a query; ok is false
// where there is no such table.
func ReadColumns(ctx context.Context, conn *pgx.Conn, table pg.Table) (rel *pg.Relation, ok bool, err error) {
	rel, columns, err := readColumns(ctx, conn, table)
	if rel == nil || err != nil {
		return nil, false, err
	}
	for _, c := range columns {
		rel.Columns = append(rel.Columns, c.Column)
	}
	return rel, true, nil
}

// ReadSent describes a table as the stream announces it through the publication
// or, without any, through the publication CreatePublication would make; ok
// is false without such a table.
func ReadSent(ctx context.Context, conn *pgx.Conn, table pg.Table, publication string) (rel *pg.Relation, ok bool, err error) {
	rel, columns, err := readColumns(ctx, conn, table)
	if rel == nil || err != nil {
		return nil, false, err
	}
	p, _, err := ReadPublication(ctx, conn, publication)
	if err != nil {
		return nil, false, err
	}
	p.Name = publication
	for _, c := range columns {
		if because, remedy := p.withholds(table, c, majorVersion(conn)); because != "" {
			rel.Unsent = append(rel.Unsent, pg.UnsentColumn{Column: c.Column, Because: because, Remedy: remedy})
		} else {
			rel.Columns = append(rel.Columns, c.Column)
		}
	}
	return rel, true, nil
}

// withholds returns the reason for the absence of a published table's column from
// the stream, and the remedy; "" for a column in the stream.
func (p Publication) withholds(t pg.Table, c tableColumn, major int) (because, remedy string) {
	const another = "name a column that is not generated, or have the application write this one"
	list := p.ColumnList(t)
	alter := "ALTER PUBLICATION " + pgsql.Name(p.Name)
	switch {
	case c.generated == "v":
		return "it is a virtual generated column, which PostgreSQL never sends", another
	case c.generated != "" && major < 18:
		return "it is a generated column, which PostgreSQL sends from 18 on", another
	case list != nil && !slices.Contains(list, c.Name):
		list = append(slices.Clone(list), c.Name)
		return fmt.Sprintf("publication %q leaves it out", p.Name), behindWriters(alter+" SET TABLE "+p.withColumns(t, list), t)
	case list == nil && c.generated != "" && p.OID == 0:
		return "it is a generated column, which a publication sends if it is told to",
			"create the publication by hand: " + CreatePublicationSQL(p.Name, []TableInfo{{Table: t}}) + "; " + alter + " SET (publish_generated_columns = stored);"
	case list == nil && c.generated != "" && !p.GeneratedStored:
		return fmt.Sprintf("it is a generated column, and publication %q leaves those out", p.Name),
			behindWriters(alter+" SET (publish_generated_columns = stored)", t)
	}
	return "", ""
}

// readColumns reads all columns, also of a relation without columns; nil without
// such a table.
func readColumns(ctx context.Context, conn *pgx.Conn, table pg.Table) (*pg.Relation, []tableColumn, error) {
	info, ok, err := ReadTable(ctx, conn, table)
	if err != nil || !ok {
		return nil, nil, err
	}
	columns, err := columnsOf(ctx, conn, info.OID)
	if err != nil {
		return nil, nil, fmt.Errorf("read columns of %s: %w", table, err)
	}
	return &pg.Relation{OID: info.OID, Namespace: table.Schema, Name: table.Name}, columns, nil
}

// DescribeColumns reads the columns of the table with the OID, with their details;
// none if the table is gone.
func DescribeColumns(ctx context.Context, conn *pgx.Conn, oid uint32) (*pg.Relation, error) {
	columns, err := columnsOf(ctx, conn, oid)
	if err != nil {
		return nil, fmt.Errorf("read columns of the table with OID %d: %w", oid, err)
	}
	rel := &pg.Relation{OID: oid}
	for _, c := range columns {
		rel.Columns = append(rel.Columns, c.Column)
	}
	return rel, nil
}

func columnsOf(ctx context.Context, conn *pgx.Conn, oid uint32) ([]tableColumn, error) {
	rows, err := conn.Query(ctx, columnsQuery, oid)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c tableColumn, err error) {
		var base uint32
		var name, kind string
		details := &c.Details
		err = row.Scan(&c.Name, &c.Type, &base, &name, &c.Modifier, &c.Identity, &c.generated,
			&details.NotNull, &details.TypeName, &kind, &details.Labels, &details.Default)
		if kind != "" {
			details.Kind = kind[0]
		}
		switch {
		case base >= firstUserOID:
			c.TypeName = name
		case base != c.Type:
			c.Type, c.Modifier = base, pg.UnknownModifier
		}
		return c, err
	})
}
