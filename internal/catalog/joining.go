package catalog

import (
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// A transaction that has written to a table before its publication changes is
// decoded by what was published then: without its earlier writes or, on servers
// with the defect losesRows, without all of them and later ones of others. So
// whoever changes a publication waits for the table's writers first. New
// writers wait behind it, so the wait is short.
const (
	lockWriters = "IN SHARE ROW EXCLUSIVE MODE"
	joinTimeout = "'3s'"
)

// behindWriters is a statement as a transaction that first waits for the
// writers of the tables.
func behindWriters(statement string, tables ...pg.Table) string {
	if len(tables) == 0 {
		return statement + ";"
	}
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.Quoted()
	}
	return "BEGIN; SET LOCAL lock_timeout = " + joinTimeout + "; LOCK TABLE " + strings.Join(names, ", ") + " " + lockWriters + "; " +
		statement + "; COMMIT;"
}

// awaitWriters is behindWriters for a block of PL/pgSQL with an array of tables
// in the variable. The error names the writers.
const awaitWriters = `        BEGIN
            SET LOCAL lock_timeout = ` + joinTimeout + `;
            EXECUTE 'LOCK TABLE ' || (SELECT string_agg(oid::regclass::text, ', ') FROM unnest(named) oid) || ' ` + lockWriters + `';
        EXCEPTION WHEN lock_not_available THEN
            RAISE EXCEPTION 'transactions that have written to the table are open, and what they wrote would not be published: %', (
                WITH RECURSIVE below AS (
                    SELECT unnest(named)::oid AS oid
                    UNION SELECT i.inhrelid FROM below JOIN pg_inherits i ON i.inhparent = below.oid)
                SELECT string_agg(DISTINCT COALESCE(format('process %s (%s, %s, %s, since %s)', l.pid, a.usename,
                                  COALESCE(NULLIF(a.application_name, ''), 'no application_name'), a.state, a.xact_start), 'a prepared transaction (pg_prepared_xacts)'), '; ')
                  FROM below JOIN pg_locks l ON l.relation = below.oid AND l.granted
                  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
                 WHERE l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                   AND l.mode NOT IN ('AccessShareLock', 'RowShareLock'))
                USING ERRCODE = '55P03', HINT = 'wait for their end, or end them: SELECT pg_terminate_backend(<process>); then repeat it';
        END;
`
