package claimcheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// table keeps values as rows.
type table struct {
	url   string
	name  pg.Table
	conns chan *pgx.Conn // as many as may be open; nil: not connected
}

func newTable(url string, o Options) *table {
	name, _ := pg.ParseTable(o.Table.Name) // Validate has
	t := &table{url: url, name: name, conns: make(chan *pgx.Conn, o.Parallel)}
	for range o.Parallel {
		t.conns <- nil
	}
	return t
}

// TableSQL creates the table of the options, if missing.
func TableSQL(name pg.Table) []string {
	return []string{
		"CREATE TABLE IF NOT EXISTS " + name.Quoted() + " (id text PRIMARY KEY, stored timestamptz NOT NULL DEFAULT now(), type text NOT NULL, value bytea NOT NULL)",
		"CREATE INDEX IF NOT EXISTS " + pgsql.Name(indexName(name)) + " ON " + name.Quoted() + " (stored)",
	}
}

// indexName is the name of the index for Sweep, short enough for PostgreSQL.
func indexName(name pg.Table) string {
	const suffix = "_stored"
	return name.Name[:min(len(name.Name), pgsql.MaxName-len(suffix))] + suffix
}

// TableGrants are the rights of the connector's role.
func TableGrants(name pg.Table, role string) []string {
	return []string{
		"GRANT USAGE ON SCHEMA " + pgsql.Name(name.Schema) + " TO " + pgsql.Name(role),
		"GRANT SELECT, INSERT, UPDATE, DELETE ON " + name.Quoted() + " TO " + pgsql.Name(role),
	}
}

func (t *table) close() {
	for range cap(t.conns) {
		catalog.Close(<-t.conns)
	}
}

func (t *table) place(name string) string { return "table:" + t.name.String() + "/" + name }

func (t *table) put(ctx context.Context, name, media string, value []byte) error {
	return t.do(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `INSERT INTO `+t.name.Quoted()+` (id, type, value) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET stored = now()`, name, media, value)
		return err
	})
}

func (t *table) get(ctx context.Context, place string, _ int64) (value []byte, err error) {
	name, ours := strings.CutPrefix(place, t.place(""))
	if !ours {
		return nil, errElsewhere
	}
	err = t.do(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT value FROM `+t.name.Quoted()+` WHERE id = $1`, name).Scan(&value)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errGone
	}
	return value, err
}

func (t *table) renew(ctx context.Context, place, _ string, _ int64) error {
	name, ours := strings.CutPrefix(place, t.place(""))
	if !ours {
		return errElsewhere
	}
	return t.do(ctx, func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, `UPDATE `+t.name.Quoted()+` SET stored = now() WHERE id = $1`, name)
		if err == nil && tag.RowsAffected() == 0 {
			err = errGone
		}
		return err
	})
}

func (t *table) remove(ctx context.Context, name string) error {
	return t.do(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `DELETE FROM `+t.name.Quoted()+` WHERE id = $1`, name)
		return err
	})
}

func (t *table) reach(ctx context.Context) error {
	return t.do(ctx, func(conn *pgx.Conn) error {
		var readOnly bool
		err := conn.QueryRow(ctx, `SELECT pg_catalog.current_setting('transaction_read_only')::boolean FROM (SELECT) AS once LEFT JOIN (SELECT id FROM `+t.name.Quoted()+` LIMIT 1) AS any_row ON true`).Scan(&readOnly)
		if err == nil && readOnly {
			err = &failure.Error{Remedy: "lead claim_check.table.url, or source.url, to the primary", Err: errors.New("the server takes no writes")}
		}
		return err
	})
}

// sweepRows is how many rows go at a time.
const sweepRows = 100

func (t *table) sweep(ctx context.Context, age time.Duration) (deleted int, more bool, err error) {
	err = t.do(ctx, func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, `DELETE FROM `+t.name.Quoted()+` WHERE ctid = ANY (ARRAY (SELECT ctid FROM `+t.name.Quoted()+` WHERE stored < now() - make_interval(secs => $1) LIMIT `+fmt.Sprint(sweepRows)+` FOR UPDATE SKIP LOCKED))`, age.Seconds())
		deleted = int(tag.RowsAffected())
		return err
	})
	return deleted, deleted == sweepRows, err
}

// do runs f on a connection. If the connection is dead, as after a restart of the server, do
// opens another and runs f once more. So f must be repeatable.
func (t *table) do(ctx context.Context, f func(*pgx.Conn) error) (err error) {
	var conn *pgx.Conn
	select {
	case conn = <-t.conns:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() {
		if conn != nil && conn.IsClosed() {
			conn = nil
		}
		t.conns <- conn
	}()
	if conn != nil {
		if err = f(conn); !conn.IsClosed() || ctx.Err() != nil {
			return t.explained(err)
		}
	}
	conn, err = catalog.ConnectStore(ctx, t.url, "cdc-outbox claims", map[string]string{"synchronous_commit": "on"}) // durable on return
	if err == nil {
		err = f(conn)
	}
	return t.explained(err)
}

// explained gives an error a class and a remedy.
func (t *table) explained(err error) error {
	if err == nil || errors.Is(err, pgx.ErrNoRows) || errors.Is(err, errGone) || failure.RemedyOf(err) != "" {
		return err
	}
	wrapped := fmt.Errorf("claim store: table %s: %w", t.name, err)
	switch pgsql.State(err) {
	case pgerrcode.UndefinedTable, pgerrcode.InvalidSchemaName:
		return failure.Configf("`cdc-outbox setup`, or as a role that may: "+strings.Join(TableSQL(t.name), "; ")+";", "%w", wrapped)
	case pgerrcode.UndefinedColumn, pgerrcode.DatatypeMismatch, pgerrcode.InvalidColumnReference:
		return failure.Configf("name a table of the connector's own in claim_check.table.name", "%w", wrapped)
	case pgerrcode.InsufficientPrivilege:
		return failure.Configf("GRANT SELECT, INSERT, UPDATE, DELETE ON "+t.name.Quoted()+" TO the connector's role;", "%w", wrapped)
	case pgerrcode.ProgramLimitExceeded:
		return &transform.BadEvent{Reason: transform.ReasonRecordTooLarge, Err: wrapped}
	case pgerrcode.ReadOnlySQLTransaction:
		return &failure.Error{Remedy: "lead claim_check.table.url, or source.url, to the primary", Err: wrapped}
	}
	err = catalog.Classify(err)
	return &failure.Error{Class: failure.ClassOf(err), Remedy: failure.RemedyOf(err), Err: wrapped}
}
