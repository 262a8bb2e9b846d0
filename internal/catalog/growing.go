package catalog

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// growingKey returns the quoted column and the type of a primary key that grows
// with time: an integer, or UUIDs all of version 7; "" for another or none.
func growingKey(ctx context.Context, conn *pgconn.PgConn, table pg.Table) (column, typ string, err error) {
	literal := pgsql.Literal(table.Quoted()) + "::regclass"
	key, err := queryText(ctx, conn, `
		SELECT quote_ident(a.attname) || ' ' || t.typname
		  FROM pg_index x
		  JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
		  JOIN pg_type t ON t.oid = a.atttypid
		 WHERE x.indrelid = `+literal+` AND x.indisprimary AND x.indnkeyatts = 1`)
	if err != nil || key == "" {
		return "", "", err
	}
	cut := strings.LastIndexByte(key, ' ')
	column, typ = key[:cut], key[cut+1:]
	switch typ {
	case "int2", "int4", "int8":
		return column, typ, nil
	case "uuid":
		// The version is the 15th character of the text (RFC 9562, 4).
		other, err := queryText(ctx, conn, `
			SELECT 1 FROM `+table.Quoted()+` WHERE substr(`+column+`::text, 15, 1) <> '7' LIMIT 1`)
		if err != nil || other != "" {
			return "", "", err
		}
		return column, typ, nil
	}
	return "", "", nil
}

// snapshotOrder returns an ORDER BY clause or "".
func snapshotOrder(ctx context.Context, conn *pgconn.PgConn, table pg.Table) (string, error) {
	column, _, err := growingKey(ctx, conn, table)
	if err != nil || column == "" {
		return "", err
	}
	return " ORDER BY " + column, nil
}
