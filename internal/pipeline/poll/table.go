package poll

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Table is an outbox table for polling.
type Table struct {
	Name     pg.Table
	OID      uint32
	Relation *pg.Relation
	charset  *pg.Charset // of the database
	Order    Order
	// Index is used by claims; "": none, and every poll reads the whole table.
	Index string
	// Nullable: rows may be neither published nor unpublished, as the flag is
	// NULL. They are never published.
	Nullable bool
	// CreatedAt is the column telling when a row was inserted; "" for none.
	CreatedAt string

	role          string // of the connection
	building      string // an invalid index for claims; "" for none
	indexName     string // of IndexSQL
	zone          string // of the times in CreatedAt without a zone, if not UTC
	partitioned   bool
	deletes       bool     // source.poll.after_publish
	key           string   // column
	published     string   // column; "" for none
	publishedAt   string   // column; "" for none
	otherFlags    []string // boolean columns beside published
	pending       string   // SQL condition of unpublished rows
	pendingWanted string   // the same as an index should have it; "" for no condition
}

// ReadTable reads an outbox table's columns, the order of its rows and the index of
// unpublished rows. A fault an operator must mend is an error of class failure.Config,
// with the SQL.
func ReadTable(ctx context.Context, conn *pgx.Conn, opts Options, event transform.EventOptions, router *transform.Router, name pg.Table) (*Table, error) {
	info, ok, err := catalog.ReadTable(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, catalog.Missing(ctx, conn, name)
	}
	if !info.Publishable {
		return nil, failure.Configf(info.PublishableRemedy(), "%s is not a permanent table", name)
	}
	rel, _, err := catalog.ReadColumns(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	charset, err := catalog.ReadCharset(ctx, conn)
	if err != nil {
		return nil, err
	}
	t := &Table{
		Name:        name,
		charset:     charset,
		OID:         info.OID,
		role:        conn.Config().User,
		Relation:    rel,
		partitioned: info.Partitioned,
		deletes:     opts.AfterPublish == AfterPublishDelete,
	}
	if t.key, err = router.KeyColumn(rel); err != nil {
		return nil, err
	}
	cs, err := readColumns(ctx, conn, info.OID)
	if err != nil {
		return nil, fmt.Errorf("read columns of %s: %w", name, err)
	}
	if c, ok := cs.first(append([]string{event.Timestamp}, createdNames...), column.time); ok {
		t.CreatedAt = c.name
		if t.zone, err = c.zone(ctx, conn); err != nil {
			return nil, fmt.Errorf("read time zone of %s: %w", name, err)
		}
	}
	if err := t.choosePending(opts, cs); err != nil {
		return nil, err
	}
	if t.Order, err = chooseOrder(opts, event, name, cs); err != nil {
		return nil, err
	}
	return t, t.chooseIndex(ctx, conn)
}

// choosePending decides how a row tells that it is published.
func (t *Table) choosePending(opts Options, cs columns) error {
	flag, time := marks(opts)
	at, hasAt, err := time.in(t.Name, cs, "remove "+time.key)
	if err != nil {
		return err
	}
	t.publishedAt = at.name
	hasAt = hasAt && !at.notNull
	otherwise := "remove " + flag.key
	if !hasAt && !t.deletes {
		otherwise = t.addMarks(opts)
	}
	published, hasFlag, err := flag.in(t.Name, cs, otherwise)
	if err != nil {
		return err
	}
	switch {
	case hasFlag:
		t.published, t.Nullable = published.name, !published.notNull
		t.otherFlags = slices.DeleteFunc(flag.fitting(cs), func(c string) bool { return c == published.name })
		t.pending = "NOT " + pgsql.Name(published.name)
		t.pendingWanted = t.pending
	case hasAt:
		t.pending = pgsql.Name(at.name) + " IS NULL"
		t.pendingWanted = t.pending
	case t.deletes:
		t.pending = "true"
	default:
		return failure.Configf(otherwise+", or set source.poll.after_publish: delete",
			"table %s has no boolean column %q to mark published rows in", t.Name, opts.Published)
	}
	return nil
}

// addMarks are the statements adding the columns for marks of published rows, for a
// table without any.
func (t *Table) addMarks(opts Options) string {
	alter, published := "ALTER TABLE "+t.Name.Quoted(), pgsql.Name(opts.Published)
	return alter + " ADD COLUMN " + published + " boolean NOT NULL DEFAULT true, ADD COLUMN IF NOT EXISTS " + pgsql.Name(opts.PublishedAt) + " timestamptz; " +
		alter + " ALTER COLUMN " + published + " SET DEFAULT false; (rows that are there count as published; with DEFAULT false at once they are published too)"
}

const columnsQuery = `
SELECT a.attname::text, COALESCE(NULLIF(t.typbasetype, 0), t.oid), a.attnotnull, a.attidentity <> '',
       COALESCE(pg_get_expr(d.adbin, d.adrelid), ''),
       EXISTS (SELECT FROM pg_index x WHERE x.indrelid = a.attrelid AND x.indisunique AND x.indisvalid
                  AND x.indnkeyatts = 1 AND x.indkey[0] = a.attnum AND x.indpred IS NULL),
       COALESCE((SELECT min(s.seqrelid::regclass::text) FROM pg_sequence s JOIN pg_depend p ON p.classid = 'pg_class'::regclass AND p.refclassid = 'pg_class'::regclass
                   AND p.objid = s.seqrelid AND p.refobjid = a.attrelid AND p.refobjsubid = a.attnum
                  WHERE s.seqcache <> 1 OR s.seqincrement <> 1),
                (SELECT min(s.seqrelid::regclass::text) FROM pg_sequence s JOIN pg_depend p ON p.classid = 'pg_attrdef'::regclass AND p.refclassid = 'pg_class'::regclass
                   AND p.objid = d.oid AND p.refobjid = s.seqrelid
                  WHERE s.seqcache <> 1 OR s.seqincrement <> 1), '')
  FROM pg_attribute a
  JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum`

func readColumns(ctx context.Context, conn *pgx.Conn, table uint32) (columns, error) {
	rows, err := conn.Query(ctx, columnsQuery, table)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c column, err error) {
		err = row.Scan(&c.name, &c.oid, &c.notNull, &c.identity, &c.def, &c.unique, &c.blocks)
		return c, err
	})
}

// Condition is the SQL condition of unpublished rows.
func (t *Table) Condition() string { return t.pending }

// Grants are the statements granting a role the privileges for polling. FOR UPDATE asks
// for UPDATE on at least a single column.
func (t *Table) Grants(role string) []string {
	role = pgsql.Name(role)
	grants := []string{"GRANT USAGE ON SCHEMA " + pgsql.Name(t.Name.Schema) + " TO " + role}
	var marked []string
	for _, c := range t.Marked() {
		marked = append(marked, pgsql.Name(c))
	}
	privileges := "SELECT, UPDATE (" + strings.Join(marked, ", ") + ")"
	if t.deletes {
		privileges = "SELECT, DELETE, UPDATE (" + pgsql.Name(t.Order.Columns[0]) + ")"
	}
	return append(grants, "GRANT "+privileges+" ON "+t.Name.Quoted()+" TO "+role)
}

// Marked are the columns for marks of published rows; none if rows are deleted.
func (t *Table) Marked() []string {
	if t.deletes {
		return nil
	}
	return slices.DeleteFunc([]string{t.published, t.publishedAt}, func(c string) bool { return c == "" })
}

// OrderBy is the ORDER BY list of claims.
func (t *Table) OrderBy() string { return t.Order.sql() }

// equal tells whether claims of both are the same statements for the same rows.
func (t *Table) equal(o *Table) bool {
	return t.OID == o.OID && t.pending == o.pending && t.key == o.key && t.CreatedAt == o.CreatedAt &&
		t.published == o.published && t.publishedAt == o.publishedAt &&
		slices.Equal(t.Order.Columns, o.Order.Columns) && slices.Equal(t.Relation.Columns, o.Relation.Columns)
}
