package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// environment has the settings of our sessions, by the parameter's name. Roles,
// databases, servers and login event triggers (PostgreSQL 17) have settings of
// their own: these would change values, end transactions, or replace
// PostgreSQL's functions by somebody else's.
type environment map[string]string

// everywhere is the environment of each session.
var everywhere = textForm.joined(lasting)

// lasting is the part without an effect on values.
var lasting = undisturbed.joined(afterLogin)

// textForm makes the text form of values independent of other settings
// (PostgreSQL's own subscriber sets the first three, libpqwalreceiver.c), and
// lets the server's warnings through.
var textForm = environment{
	"datestyle":                   "ISO, MDY",
	"intervalstyle":               "postgres",
	"extra_float_digits":          "3",
	"timezone":                    "UTC",
	"bytea_output":                "hex",
	"standard_conforming_strings": "on", // package pgsql quotes accordingly
	"client_min_messages":         "warning",
	"client_encoding":             "UTF8",
}

// undisturbed lets statements and transactions take their time, and write. Each
// wait of ours has its own limit, see line. For a walsender each decoded
// transaction is a transaction of its own, ended by transaction_timeout.
var undisturbed = environment{
	"statement_timeout":                   "0",
	"idle_in_transaction_session_timeout": "0",
	"idle_session_timeout":                "0",
	"default_transaction_isolation":       "read committed",
	"default_transaction_read_only":       "off",
	"default_transaction_deferrable":      "off",
}

// afterLogin cannot be sent with the login: servers before 17 have no
// transaction_timeout. The search path of the login leads to the checkpoint's
// table, if its name has no schema (see OwnPath).
var afterLogin = environment{
	"transaction_timeout": "0",
	"search_path":         "pg_catalog, pg_temp",
}

// noLockTimeout is for a session with other limits for locks.
var noLockTimeout = environment{"lock_timeout": "0"}

// joined is the environment with others' additions.
func (e environment) joined(others ...environment) environment {
	all := maps.Clone(e)
	for _, o := range others {
		maps.Copy(all, o)
	}
	return all
}

// sql is the statement setting the environment: for the session, or until the
// transaction ends. It names all functions with their schema: the search path
// before may be anybody's. The server may lack a parameter.
func (e environment) sql(local bool) string {
	var calls []string
	for _, name := range slices.Sorted(maps.Keys(e)) {
		parameter, value := pgsql.Literal(name), pgsql.Literal(e[name])
		if name == "client_encoding" {
			value = clientEncoding
		}
		calls = append(calls, "CASE WHEN pg_catalog.current_setting("+parameter+", true) IS NOT NULL THEN pg_catalog.set_config("+
			parameter+", "+value+", "+strconv.FormatBool(local)+") END")
	}
	return "SELECT " + strings.Join(calls, ", ")
}

// clientEncoding is UTF8. Only a database in SQL_ASCII, without a known
// encoding, gives the bytes as they are: asked for UTF8 the server would convert
// nothing, but end the stream at each invalid byte of any published table.
// Package transform judges the row.
const clientEncoding = "CASE WHEN pg_catalog.current_setting('server_encoding') OPERATOR(pg_catalog.=) 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END"

// login gives the environment to the server with the login. Most poolers refuse
// the setting, so no session of the application gets it.
func (e environment) login(cfg *pgconn.Config) {
	for name, value := range e {
		if _, late := afterLogin[name]; !late {
			cfg.RuntimeParams[name] = value
		}
	}
}

// settle sets the environment once more when the login is over: the settings of
// a login event trigger prevail over the login's.
func (e environment) settle(ctx context.Context, conn *pgconn.PgConn) error {
	if len(e) == 0 {
		return nil
	}
	if _, err := conn.Exec(ctx, e.sql(false)).ReadAll(); err != nil {
		return fmt.Errorf("set the session's parameters: %w", err)
	}
	return nil
}

// Environment is the statement setting the environment of a session until the
// transaction ends, for connections of ConnectPooled. Values then have the text
// form of the stream.
var Environment = everywhere.joined(noLockTimeout).sql(true)

// ScriptEnvironment has statements that give a session of psql our environment.
var ScriptEnvironment = lasting.joined(noLockTimeout, environment{"standard_conforming_strings": "on"}).sets()

// sets are statements for the session; for a parameter that the server may lack
// it is a block.
func (e environment) sets() (statements []string) {
	for _, name := range slices.Sorted(maps.Keys(e)) {
		switch name {
		case "search_path":
			statements = append(statements, "SET search_path = "+e[name])
		case "transaction_timeout":
			set := strings.Replace(environment{name: e[name]}.sql(false), "SELECT", "PERFORM", 1)
			statements = append(statements, "DO $setup$ BEGIN "+set+"; END $setup$")
		default:
			statements = append(statements, "SET "+name+" = "+pgsql.Literal(e[name]))
		}
	}
	return statements
}

// OwnPath is the statement that gives the session the search path of its login
// until the transaction ends. Functions and operators must then have a schema.
const OwnPath = "SET LOCAL search_path TO DEFAULT"
