package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Snapshot selects rows of a table, and says how to number them.
type Snapshot struct {
	// Name is that of an exported snapshot, as by CreateSlot. Empty means the rows
	// visible now.
	Name  string
	Table pg.Table
	// Relation describes the table, as by ReadColumns; its columns are read in
	// their order.
	Relation *pg.Relation
	// Charset is the database's, as by ReadCharset.
	Charset *pg.Charset
	// Position numbers the first row; the slot's first position with Seq 0,
	// or with the rows of the tables before counted in.
	Position pg.Position
	// Limit ends after so many rows; 0 means no limit.
	Limit int
	// Where and OrderBy, as SQL text, choose among the rows and order them; empty
	// means all of them, in ReadSnapshot's order.
	Where, OrderBy string
	// AnyOrder reads the rows as they lie, whatever the table's key.
	AnyOrder bool
	// Only names the columns whose values are read; the others are NULL in the
	// rows. Empty means all.
	Only []string
	// Also are SQL expressions read beside the columns; see ReadRows.
	Also []string
}

// ReadSnapshot reads the table's rows in the text form of the stream and calls
// fn for each as an insert. The order is that of the primary key if the key
// grows with time (an integer, or UUIDs all of version 7), and otherwise the
// physical order. The row passed to fn is valid during the call, the bytes of its
// values for good. CommitTime is the time of the snapshot: a row's own is not
// recorded.
//
// Memory stays at a single row: rows are taken off the socket singly; fn may
// block for any time. conn is from Connect, which sets the text form;
// ReadSnapshot runs a read-only transaction, ended before ReadSnapshot returns.
// An error of fn is returned unwrapped and, like canceling ctx, closes conn.
func ReadSnapshot(ctx context.Context, conn *pgx.Conn, s Snapshot, fn func(*pg.Row) error) error {
	return ReadRows(ctx, conn, s, func(row *pg.Row, _ [][]byte) error { return fn(row) })
}

// ReadRows is ReadSnapshot with the text of the expressions of s.Also, nil for
// NULL. It is valid during the call of fn.
func ReadRows(ctx context.Context, conn *pgx.Conn, s Snapshot, fn func(row *pg.Row, also [][]byte) error) error {
	var stopped error // of fn, returned untouched
	err := inSnapshot(ctx, conn.PgConn(), s, func(r *pg.Row, also [][]byte) error {
		stopped = fn(r, also)
		return stopped
	})
	// After an error the transaction is open still, or the connection closed.
	if _, endErr := conn.PgConn().Exec(ctx, "ROLLBACK").ReadAll(); err == nil {
		err = endErr
	}
	if stopped != nil {
		return stopped
	}
	if err != nil {
		err = unreadable(conn, s.Table, fmt.Errorf("read snapshot of %s: %w", s.Table, err))
	}
	return err
}

// unreadable adds the remedy to the error of a role without the right. Streaming needs no
// right to read the table, and is not bound by policies.
func unreadable(conn *pgx.Conn, table pg.Table, err error) error {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || refused.Code != pgerrcode.InsufficientPrivilege {
		return err
	}
	role := pgsql.Name(conn.Config().User)
	if refused.Routine == routineRowSecurity {
		return failure.Configf("ALTER ROLE "+role+" WITH BYPASSRLS;", "%w", err)
	}
	return failure.Configf("GRANT SELECT ON "+table.Quoted()+" TO "+role+";", "%w", err)
}

// routineRowSecurity is the server's routine refusing to read a table with rows
// hidden by a policy (rls.c). The code is that of any missing privilege.
const routineRowSecurity = "check_enable_rls"

func inSnapshot(ctx context.Context, conn *pgconn.PgConn, s Snapshot, fn func(*pg.Row, [][]byte) error) error {
	at, err := beginSnapshot(ctx, conn, s.Name)
	if err != nil {
		return err
	}
	order := ""
	switch {
	case s.OrderBy != "":
		order = " ORDER BY " + s.OrderBy
	case !s.AnyOrder:
		if order, err = snapshotOrder(ctx, conn, s.Table); err != nil {
			return err
		}
	}
	return streamRows(ctx, conn, SendAsStored(s.Charset, true)+snapshotSelect(s, order), rowReader(s, at, fn))
}

// beginSnapshot also pins the order's conditions: a sequential scan starts at
// the table's first page and is not shared out. Rows hidden by a policy are an
// error.
func beginSnapshot(ctx context.Context, conn *pgconn.PgConn, name string) (time.Time, error) {
	sql := "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;\n"
	if name != "" {
		sql += "SET TRANSACTION SNAPSHOT " + pgsql.Literal(name) + ";\n"
	}
	sql += `SET LOCAL row_security = off;
		SET LOCAL synchronize_seqscans = off;
		SET LOCAL max_parallel_workers_per_gather = 0;
		SET LOCAL statement_timeout = 0;
		SET LOCAL idle_in_transaction_session_timeout = 0;
		SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
	text, err := queryText(ctx, conn, sql)
	if err != nil {
		return time.Time{}, fmt.Errorf("begin: %w", err)
	}
	return time.Parse(time.RFC3339Nano, text)
}

func snapshotSelect(s Snapshot, order string) string {
	columns := make([]string, len(s.Relation.Columns), len(s.Relation.Columns)+len(s.Also))
	for i, c := range s.Relation.Columns {
		columns[i] = pgsql.Name(c.Name)
		if len(s.Only) > 0 && !slices.Contains(s.Only, c.Name) {
			columns[i] = "NULL"
		}
	}
	columns = append(columns, s.Also...)
	sql := "SELECT " + strings.Join(columns, ", ") + " FROM " + s.Table.Quoted()
	if s.Where != "" {
		sql += " WHERE " + s.Where
	}
	sql += order
	if s.Limit > 0 {
		sql += fmt.Sprintf(" LIMIT %d", s.Limit)
	}
	return sql
}

// rowReader returns a function turning a result row into a Row for fn.
func rowReader(s Snapshot, at time.Time, fn func(*pg.Row, [][]byte) error) func([][]byte) error {
	row := pg.Row{
		Position:   s.Position,
		CommitTime: at,
		Relation:   s.Relation,
		Values:     make([]pg.Value, len(s.Relation.Columns)),
	}
	return func(values [][]byte) error {
		own, also := values[:len(row.Values)], values[len(row.Values):]
		pg.CopyText(row.Values, own)
		s.Charset.Convert(row.Values)
		if err := fn(&row, also); err != nil {
			return err
		}
		row.Position.Seq++
		return nil
	}
}

// streamRows runs a query and passes its rows on as they arrive, in text form.
// When fn fails the rest is not read and conn is closed.
func streamRows(ctx context.Context, conn *pgconn.PgConn, sql string, fn func([][]byte) error) error {
	query, cancel := context.WithCancel(ctx)
	defer cancel()
	results := conn.Exec(query, sql)
	for results.NextResult() {
		rows := results.ResultReader()
		for rows.NextRow() {
			if err := fn(rows.Values()); err != nil {
				cancel()
				_ = results.Close() // reports the cancelation
				return err
			}
		}
	}
	return results.Close()
}

// queryText returns the first column of the first row of the last statement, or
// "" for none.
func queryText(ctx context.Context, conn *pgconn.PgConn, sql string) (string, error) {
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return "", err
	}
	last := results[len(results)-1]
	if len(last.Rows) == 0 {
		return "", nil
	}
	return string(last.Rows[0][0]), nil
}
