package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// postgres keeps checkpoints as rows of a table, by key.
type postgres struct {
	url   string
	table string // as SQL
	key   string
	busy  chan struct{} // capacity 1: full while conn is in use
	conn  *pgx.Conn     // nil while not connected
}

// NewPostgres returns the store keeping the checkpoint under key in a table of
// the database at url. The table's name follows SQL's quoting rules and may
// have a schema; it is created where missing.
//
// The table may be in the replicated database: no publication has it. But each
// save moves the end of the log, so a caller that saves every position would
// always have another to save.
func NewPostgres(ctx context.Context, url, table, key string) (checkpoint.Store, error) {
	p := &postgres{url: url, key: key, busy: make(chan struct{}, 1)}
	err := p.do(ctx, func(conn *pgx.Conn) error { return p.ensureTable(ctx, conn, table) })
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("checkpoint table %s: %w", table, err)
	}
	return p, nil
}

func (p *postgres) Load(ctx context.Context) (cp checkpoint.Checkpoint, ok bool, err error) {
	var value []byte
	err = p.do(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT checkpoint FROM `+p.table+` WHERE key = $1`, p.key).Scan(&value)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return checkpoint.Checkpoint{}, false, nil
	}
	if pgsql.State(err) == pgerrcode.UndefinedColumn {
		err = failure.Configf("name a table in checkpoint.table that is the connector's own", "it is no table of checkpoints: %w", err)
	}
	if err != nil {
		return checkpoint.Checkpoint{}, false, fmt.Errorf("load checkpoint from table %s: %w", p.table, err)
	}
	cp, err = decode(value, fmt.Sprintf("the row of table %s with key %q", p.table, p.key))
	return cp, err == nil, err
}

func (p *postgres) Save(ctx context.Context, cp checkpoint.Checkpoint) error {
	value, err := encode(cp)
	if err != nil {
		return err
	}
	var saved pgconn.CommandTag
	err = p.do(ctx, func(conn *pgx.Conn) error {
		saved, err = conn.Exec(ctx, `
			INSERT INTO `+p.table+` AS old (key, epoch, checkpoint) VALUES ($1, $2, $3)
			ON CONFLICT (key) DO UPDATE SET epoch = excluded.epoch, checkpoint = excluded.checkpoint
			WHERE (old.epoch, (old.checkpoint->>'lsn')::pg_lsn) <= (excluded.epoch, $4::pg_lsn)`,
			p.key, cp.Epoch, value, cp.LSN.String())
		return err
	})
	if err != nil {
		return fmt.Errorf("save checkpoint to table %s: %w", p.table, err)
	}
	if saved.RowsAffected() == 0 {
		return p.superseded(ctx, cp)
	}
	return nil
}

func (p *postgres) superseded(ctx context.Context, cp checkpoint.Checkpoint) error {
	found, _, err := p.Load(ctx)
	if err != nil {
		return err
	}
	return superseded(found, cp)
}

func (p *postgres) Close() {
	catalog.Close(p.conn)
	p.conn = nil
}

// do runs f on the connection. If the connection is dead, as after a restart of
// the server, do opens a new one and runs f once more. So f must be repeatable.
func (p *postgres) do(ctx context.Context, f func(*pgx.Conn) error) error {
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.conn != nil {
		err := f(p.conn)
		if !p.conn.IsClosed() || ctx.Err() != nil {
			return err
		}
		p.conn = nil
	}
	conn, err := p.connect(ctx)
	if err != nil {
		return err
	}
	p.conn = conn
	return f(conn)
}

// connect parses the URL each time, so files named in it are read anew, such as
// a rotated password.
func (p *postgres) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := catalog.ConnectStore(ctx, p.url, "cdc-outbox checkpoint",
		map[string]string{"synchronous_commit": "on"}) // durable on return, whatever the database's default is
	if err != nil {
		return nil, fmt.Errorf("checkpoint store: %w", err)
	}
	return conn, nil
}

// ensureTable finds or creates the table. It looks first: CREATE TABLE IF NOT
// EXISTS asks for the right to create even if there is nothing to do.
func (p *postgres) ensureTable(ctx context.Context, conn *pgx.Conn, table string) error {
	located, exists, err := LocateTable(ctx, conn, table)
	p.table = located
	if err != nil {
		return err
	}
	if exists {
		return p.ownTable(ctx, conn)
	}
	create := TableSQL(p.table)
	_, createErr := conn.Exec(ctx, create)
	if createErr == nil {
		return nil
	}
	if _, exists, err = LocateTable(ctx, conn, p.table); err != nil {
		return err
	}
	if exists { // another process was faster
		return p.ownTable(ctx, conn)
	}
	return failure.Configf("as a role that may: "+create+"; GRANT SELECT, INSERT, UPDATE ON "+p.table+" TO "+
		pgx.Identifier{conn.Config().User}.Sanitize()+";", "create it: %w", createErr)
}

// TableSQL creates the table of NewPostgres, if missing. The name is given as SQL.
func TableSQL(table string) string {
	return `CREATE TABLE IF NOT EXISTS ` + table + ` (key text PRIMARY KEY, epoch bigint NOT NULL, checkpoint jsonb NOT NULL)`
}

// LocateTable lets the server parse the name of a checkpoint table. The result
// is SQL. A name without a schema means the table on the search path of the
// login or, if there is none, in public, or else a table to be created: in the
// first schema of the path or, where the path is empty, in public.
func LocateTable(ctx context.Context, conn *pgx.Conn, table string) (located string, exists bool, err error) {
	var name pgx.Identifier
	if err := conn.QueryRow(ctx, `SELECT parse_ident($1)`, table).Scan(&name); err != nil {
		return "", false, failure.Configf("set checkpoint.table to table or schema.table", "checkpoint.table: %w", err)
	}
	if len(name) == 1 {
		schema, err := schemaOf(ctx, conn, name)
		if err != nil {
			return "", false, err
		}
		name = pgx.Identifier{schema, name[0]}
	}
	err = conn.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, name.Sanitize()).Scan(&exists)
	if pgsql.State(err) == pgerrcode.InsufficientPrivilege {
		err = failure.Configf("GRANT USAGE ON SCHEMA "+name[:1].Sanitize()+" TO "+pgx.Identifier{conn.Config().User}.Sanitize()+
			"; (and CREATE, as long as the table is missing); or name a table of another schema in checkpoint.table", "%w", err)
	}
	return name.Sanitize(), exists, err
}

// schemaOf is LocateTable for a name without a schema.
func schemaOf(ctx context.Context, conn *pgx.Conn, table pgx.Identifier) (schema string, err error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback(ctx) }() // nothing was changed
	if _, err := tx.Exec(ctx, catalog.OwnPath); err != nil {
		return "", err
	}
	err = tx.QueryRow(ctx, `
		SELECT COALESCE((SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
		                  WHERE c.oid OPERATOR(pg_catalog.=) COALESCE(pg_catalog.to_regclass($1), pg_catalog.to_regclass($2))),
		                pg_catalog.current_schema(), 'public')::pg_catalog.text`,
		table.Sanitize(), pgx.Identifier{"public", table[0]}.Sanitize()).Scan(&schema)
	if schema == "pg_catalog" { // the only schema of the path
		schema = "public"
	}
	return schema, err
}

// ownTable refuses a table of somebody who may create tables there and no more:
// its triggers would act as our role, and its owner can write any checkpoint. A
// role that may create in the database, as setup's must for the publication, is
// trusted.
func (p *postgres) ownTable(ctx context.Context, conn *pgx.Conn) error {
	var trusted bool
	var owner string
	err := conn.QueryRow(ctx, `
		SELECT pg_catalog.pg_has_role(relowner, 'USAGE') OR pg_catalog.has_database_privilege(relowner, pg_catalog.current_database(), 'CREATE'),
		       pg_catalog.pg_get_userbyid(relowner)::text
		  FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass($1)`, p.table).Scan(&trusted, &owner)
	switch {
	case err != nil:
		return fmt.Errorf("look at its owner: %w", err)
	case trusted:
		return nil
	}
	user := pgx.Identifier{conn.Config().User}.Sanitize()
	return failure.Configf("find out who made it. Set checkpoint.table to a table of a schema in which only trusted roles may create; or, if it is yours: ALTER TABLE "+p.table+" OWNER TO "+user+";",
		"it belongs to role %s, which may not create in the database: its triggers would act as role %s", pgx.Identifier{owner}.Sanitize(), user)
}
