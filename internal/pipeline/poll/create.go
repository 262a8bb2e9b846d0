package poll

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/sqltext"
)

// SequenceColumn orders the rows of a table that `cdc-outbox setup` creates.
const SequenceColumn = "seq"

// NewTable is what ReadTable would find of a table that is to be created with
// SequenceColumn and the configured columns for marks.
func NewTable(opts Options, name pg.Table) *Table {
	p := opts
	t := &Table{
		Name:        name,
		Order:       Order{Columns: []string{SequenceColumn}, Kind: OrderSequence},
		deletes:     p.AfterPublish == AfterPublishDelete,
		published:   p.Published,
		publishedAt: p.PublishedAt,
		pending:     "NOT " + sqltext.Name(p.Published),
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

// notifier is the name of both the trigger and its function; it is in the
// table's schema.
func (t *Table) notifier() pg.Table {
	return pg.Table{Schema: t.Name.Schema, Name: suffixed(t.Name.Name, "_notify")}
}

// NotifySQL creates or replaces the trigger that tells of new rows, once for
// each INSERT statement; PostgreSQL sends one notification for a transaction.
func (t *Table) NotifySQL(channel string) []string {
	n := t.notifier()
	return []string{
		"CREATE OR REPLACE FUNCTION " + n.Quoted() + "() RETURNS trigger LANGUAGE plpgsql AS $notify$\n" +
			"BEGIN\n    PERFORM pg_catalog.pg_notify(" + sqltext.Literal(channel) + ", '');\n    RETURN NULL;\nEND $notify$",
		"CREATE OR REPLACE TRIGGER " + sqltext.Name(n.Name) + " AFTER INSERT ON " + t.Name.Quoted() +
			" FOR EACH STATEMENT EXECUTE FUNCTION " + n.Quoted() + "()",
	}
}

// DropNotifySQL undoes NotifySQL.
func (t *Table) DropNotifySQL() []string {
	n := t.notifier()
	return []string{
		"DROP TRIGGER IF EXISTS " + sqltext.Name(n.Name) + " ON " + t.Name.Quoted(),
		"DROP FUNCTION IF EXISTS " + n.Quoted() + "()",
	}
}

// Notifies tells whether the table has a trigger, of whatever name, that sends
// notifications to the channel.
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
