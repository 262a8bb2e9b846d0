package poll

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

const indexesQuery = `
SELECT i.relname::text, pg_get_indexdef(x.indexrelid, 1, false), COALESCE(pg_get_expr(x.indpred, x.indrelid), ''), x.indisvalid AND x.indisready
  FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am m ON m.oid = i.relam
 WHERE x.indrelid = $1 AND m.amname = 'btree' AND x.indoption[0] & 1 = 0
 ORDER BY x.indpred IS NULL, i.relname`

// chooseIndex finds an index of the unpublished rows in their order. If the condition
// has another form, claims use the same form: the planner would not see that both are
// equivalent.
func (t *Table) chooseIndex(ctx context.Context, conn *pgx.Conn) error {
	type index struct {
		name, column, condition string
		valid                   bool
	}
	rows, err := conn.Query(ctx, indexesQuery, t.OID)
	if err != nil {
		return fmt.Errorf("read indexes of %s: %w", t.Name, err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (x index, err error) {
		err = row.Scan(&x.name, &x.column, &x.condition, &x.valid)
		return x, err
	})
	if err != nil {
		return fmt.Errorf("read indexes of %s: %w", t.Name, err)
	}
	for _, x := range list {
		condition := strings.Trim(x.condition, "()")
		if x.column != t.Order.Columns[0] && x.column != pgsql.Name(t.Order.Columns[0]) || !t.means(condition) {
			continue
		}
		if !x.valid {
			t.building = x.name
			continue
		}
		t.Index, t.building = x.name, ""
		if condition != "" {
			t.pending = condition
		}
		t.Nullable = t.Nullable && !strings.HasSuffix(condition, isNotTrue)
		return nil
	}
	return t.nameIndex(ctx, conn)
}

// nameIndex chooses a name for the missing index, not in use in the schema.
func (t *Table) nameIndex(ctx context.Context, conn *pgx.Conn) error {
	err := conn.QueryRow(ctx, `
		SELECT COALESCE((SELECT name FROM unnest($1::text[]) WITH ORDINALITY AS names(name, n)
		 WHERE NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = $2 AND c.relname = names.name)
		 ORDER BY n LIMIT 1), ($1::text[])[1])`, indexNames(t.Name), t.Name.Schema).Scan(&t.indexName)
	if err != nil {
		return fmt.Errorf("find a name for an index of %s: %w", t.Name, err)
	}
	return nil
}

// isNotTrue ends a condition true also for rows with NULL.
const isNotTrue = " IS NOT TRUE"

// means tells whether an index with the condition has all unpublished rows, and none
// published long ago.
func (t *Table) means(condition string) bool {
	if t.pendingWanted == "" || condition == "" {
		return t.pendingWanted == condition
	}
	var forms []string
	for _, form := range []string{"NOT %s", "%s = false", "%s IS FALSE", "%s" + isNotTrue} {
		forms = append(forms, fmt.Sprintf(form, t.published), fmt.Sprintf(form, pgsql.Name(t.published)))
	}
	if t.published == "" {
		forms = []string{t.publishedAt + " IS NULL", pgsql.Name(t.publishedAt) + " IS NULL"}
	}
	return slices.Contains(forms, condition)
}

// Building tells whether the claims' index is there, and not valid: CREATE
// INDEX CONCURRENTLY is at work, or has failed.
func (t *Table) Building() bool { return t.building != "" }

// IndexSQL creates the claims' index.
func (t *Table) IndexSQL() string {
	return indexSQL(t.Name, t.indexName, t.Order.Columns, t.pendingWanted, !t.partitioned)
}

// indexNames are names for an index of the table, the best first.
func indexNames(t pg.Table) []string {
	names := []string{suffixed(t.Name, "_unpublished_idx")}
	for n := 2; n < 10; n++ {
		names = append(names, suffixed(t.Name, fmt.Sprintf("_unpublished_idx%d", n)))
	}
	return names
}

// suffixed appends the suffix to a name, cut to the length of an identifier.
func suffixed(name, suffix string) string {
	return strings.ToValidUTF8(name[:min(len(name), pgsql.MaxName-len(suffix))], "") + suffix
}

func indexSQL(t pg.Table, name string, columns []string, condition string, concurrently bool) string {
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = pgsql.Name(c)
	}
	sql := "CREATE INDEX "
	if concurrently {
		sql += "CONCURRENTLY "
	}
	sql += "IF NOT EXISTS " + pgsql.Name(name) + " ON " + t.Quoted() + " (" + strings.Join(quoted, ", ") + ")"
	if condition != "" {
		sql += " WHERE " + condition
	}
	return sql
}

// SequenceColumn orders the rows of a table created by `cdc-outbox setup`.
const SequenceColumn = "seq"

// NewTable is ReadTable of a table still to be created, with SequenceColumn and the
// configured columns for marks.
func NewTable(opts Options, name pg.Table) *Table {
	p := opts
	t := &Table{
		Name:        name,
		Order:       Order{Columns: []string{SequenceColumn}, Kind: OrderSequence},
		deletes:     p.AfterPublish == AfterPublishDelete,
		published:   p.Published,
		publishedAt: p.PublishedAt,
		pending:     "NOT " + pgsql.Name(p.Published),
	}
	if len(p.OrderBy) > 0 {
		t.Order.Columns = p.OrderBy
	}
	if t.deletes {
		t.published, t.publishedAt, t.pending = "", "", ""
	}
	t.pendingWanted = t.pending
	t.indexName = indexNames(name)[0]
	return t
}

// notifier is the name of both the trigger and its function, in the table's schema.
func (t *Table) notifier() pg.Table {
	return pg.Table{Schema: t.Name.Schema, Name: suffixed(t.Name.Name, "_notify")}
}

// NotifySQL creates or replaces the trigger that tells of new rows, once for each
// INSERT statement; PostgreSQL sends a single notification for a transaction.
func (t *Table) NotifySQL(channel string) []string {
	n := t.notifier()
	return []string{
		"CREATE OR REPLACE FUNCTION " + n.Quoted() + "() RETURNS trigger LANGUAGE plpgsql AS " +
			pgsql.Dollars("notify", "\nBEGIN\n    PERFORM pg_catalog.pg_notify("+pgsql.Literal(channel)+", '');\n    RETURN NULL;\nEND "),
		"CREATE OR REPLACE TRIGGER " + pgsql.Name(n.Name) + " AFTER INSERT ON " + t.Name.Quoted() +
			" FOR EACH STATEMENT EXECUTE FUNCTION " + n.Quoted() + "()",
	}
}

// DropNotifySQL undoes NotifySQL.
func (t *Table) DropNotifySQL() []string {
	n := t.notifier()
	return []string{
		"DROP TRIGGER IF EXISTS " + pgsql.Name(n.Name) + " ON " + t.Name.Quoted(),
		"DROP FUNCTION IF EXISTS " + n.Quoted() + "()",
	}
}

// Notifies tells whether the table has a trigger, of any name, with notifications to
// the channel.
func (t *Table) Notifies(ctx context.Context, conn *pgx.Conn, channel string) (ok bool, err error) {
	err = conn.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid
		                WHERE g.tgrelid = $1 AND g.tgenabled IN ('O', 'A') AND g.tgtype & 4 <> 0
		                  AND p.prosrc LIKE '%notify%' AND position($2 IN p.prosrc) > 0)`, t.OID, channel).Scan(&ok)
	if err != nil {
		return false, fmt.Errorf("read triggers of %s: %w", t.Name, err)
	}
	return ok, nil
}
