package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// configured returns why the tables are not all in source.tables.
func (a *auditor) configured(tables []pg.Table) error {
	var names []string
	for _, t := range a.cfg.Source.Tables {
		names = append(names, t.String())
	}
	for _, t := range tables {
		if !slices.Contains(a.cfg.Source.Tables, t) {
			remedy := "choose among source.tables: " + strings.Join(names, ", ")
			if meant := nearest.To(t.String(), names); meant != "" {
				remedy = "did you mean " + meant + "? Otherwise " + remedy
			}
			return failure.Configf(remedy, "table %s is not among source.tables", t)
		}
	}
	return nil
}

// bounded adds the operator's condition to those of the table. The server analyses it
// before, as one statement: a second one in the text is an error.
func (a *auditor) bounded(ctx context.Context, t *auditedTable) error {
	condition := "(" + a.opts.Where + "\n)" // the text may end in a comment
	analysed, err := a.conn.PgConn().Prepare(ctx, "", "SELECT FROM "+t.Name.Quoted()+" WHERE "+condition, nil)
	switch {
	case err != nil:
		return a.ofCondition(fmt.Errorf("--where for table %s: %w", t.Name, err))
	case len(analysed.ParamOIDs) > 0:
		return failure.Configf("write the values into the condition", "--where %q has parameters", a.opts.Where)
	}
	t.chosen = append(t.chosen, condition)
	return nil
}

// ofCondition gives an error of the operator's condition class and remedy; others stay
// as they are. The code decides: data (22), syntax and rights (42), or a write in the
// read-only transaction.
func (a *auditor) ofCondition(err error) error {
	if a.opts.Where == "" || err == nil || failure.ClassOf(err) == failure.Config {
		return err
	}
	code := pgsql.State(err)
	if code != pgerrcode.ReadOnlySQLTransaction && !strings.HasPrefix(code, "22") && !strings.HasPrefix(code, "42") {
		return err
	}
	remedy := "correct --where, which stands behind SELECT … WHERE, with the columns of the table"
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Hint != "" {
		remedy += " (" + refused.Hint + ")"
	}
	return failure.Configf(remedy, "%w", err)
}
