package retention

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// detach takes a partition out of the table and marks it for dropDetached.
// While a default partition exists, PostgreSQL refuses to detach concurrently,
// and takes an exclusive lock, for which detach waits only shortly.
func (r *retention) detach(ctx context.Context, conn *pgx.Conn, parent pg.Table, p partition, hasDefault bool) error {
	statement := "ALTER TABLE " + parent.Quoted() + " DETACH PARTITION " + p.table.Quoted()
	comment := pgsql.Literal(marked(p.comment, detachedFrom(parent)))
	var err error
	switch {
	case hasDefault && !p.pending: // both in a single transaction, or neither
		_, err = conn.Exec(ctx, commentOn(p.table, comment)+"; "+statement)
	default: // alone, as PostgreSQL requires
		if err := mark(ctx, conn, p.table, comment); err != nil {
			return err
		}
		how := " CONCURRENTLY"
		if p.pending {
			how = " FINALIZE"
		}
		_, err = conn.Exec(ctx, statement+how)
	}
	if err != nil {
		return fmt.Errorf("detach partition %s: %w", p.table, err)
	}
	r.opts.Log.Info("detached partition", zap.Stringer("partition", p.table))
	return nil
}

// detachedFrom is the mark of a former partition, in the table's comment behind an
// operator's text. So the mark survives a crash of the connector.
func detachedFrom(parent pg.Table) string {
	return "cdc-outbox: old partition of " + parent.Quoted() + ", to be dropped when all its events are published"
}

// marked is the comment with the mark as the last line.
func marked(comment, mark string) string {
	switch {
	case comment == "":
		return mark
	case isMarked(comment, mark):
		return comment
	}
	return comment + "\n" + mark
}

func isMarked(comment, mark string) bool {
	return comment == mark || strings.HasSuffix(comment, "\n"+mark)
}

// unmarked is the comment as an SQL literal without the mark.
func unmarked(comment, mark string) string {
	if comment == mark {
		return "NULL"
	}
	return pgsql.Literal(strings.TrimSuffix(comment, "\n"+mark))
}

func commentOn(t pg.Table, comment string) string {
	return "COMMENT ON TABLE " + t.Quoted() + " IS " + comment
}

// mark gives a partition a comment, an SQL literal or NULL.
func mark(ctx context.Context, conn *pgx.Conn, t pg.Table, comment string) error {
	if _, err := conn.Exec(ctx, commentOn(t, comment)); err != nil {
		return fmt.Errorf("mark partition %s: %w", t, err)
	}
	return nil
}

// detachedQuery finds the tables that carry the mark and are no partitions any
// more.
const detachedQuery = `
SELECT n.nspname, c.relname, c.oid
  FROM pg_description d
  JOIN pg_class c ON c.oid = d.objoid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE d.classoid = 'pg_class'::regclass AND d.objsubid = 0
   AND (d.description = $1::text OR right(d.description, length($1::text) + 1) = E'\n' || $1::text)
   AND c.relkind IN ('r', 'p') AND NOT c.relispartition
 ORDER BY 2`

// dropDetached drops detached partitions, once the confirmed position has passed
// the moment when each was first seen detached. There are no later writes to the
// table, because detaching waits for all writers.
func (r *retention) dropDetached(ctx context.Context, conn *pgx.Conn, parent pg.Table) error {
	rows, err := conn.Query(ctx, detachedQuery, detachedFrom(parent))
	if err != nil {
		return fmt.Errorf("look for detached partitions of %s: %w", parent, err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p partition, err error) {
		err = row.Scan(&p.table.Schema, &p.table.Name, &p.oid)
		return p, err
	})
	if err != nil {
		return fmt.Errorf("look for detached partitions of %s: %w", parent, err)
	}
	var errs []error
	for _, p := range found {
		errs = append(errs, r.drop(ctx, conn, parent, p))
	}
	return errors.Join(errs...)
}

func (r *retention) drop(ctx context.Context, conn *pgx.Conn, parent pg.Table, p partition) error {
	published, err := r.confirmedSince(ctx, conn, since{detached, p.oid})
	if err != nil || !published {
		return err
	}
	if _, err := conn.Exec(ctx, "DROP TABLE "+p.table.Quoted()); err != nil {
		return fmt.Errorf("drop partition %s: %w", p.table, err)
	}
	delete(r.seen, since{detached, p.oid})
	r.opts.Observer.RetentionPartition(parent, Dropped)
	r.opts.Log.Info("dropped partition", zap.Stringer("partition", p.table))
	return nil
}
