package catalog

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// hostile are settings of a database to change values, end transactions, or hide
// PostgreSQL's functions.
var hostile = map[string]string{
	"search_path":                         "public, pg_catalog",
	"datestyle":                           "German",
	"intervalstyle":                       "iso_8601",
	"extra_float_digits":                  "-10",
	"timezone":                            "Asia/Kolkata",
	"bytea_output":                        "escape",
	"standard_conforming_strings":         "off",
	"client_min_messages":                 "error",
	"client_encoding":                     "LATIN1",
	"statement_timeout":                   "1h",
	"lock_timeout":                        "1h",
	"idle_in_transaction_session_timeout": "1h",
	"idle_session_timeout":                "1h",
	"default_transaction_isolation":       "serializable",
	"default_transaction_read_only":       "on",
	"default_transaction_deferrable":      "on",
	"transaction_timeout":                 "1h",
}

// ours are the settings of each session in their place.
var ours = map[string]string{
	"search_path":                         "pg_catalog, pg_temp",
	"datestyle":                           "ISO, MDY",
	"intervalstyle":                       "postgres",
	"extra_float_digits":                  "3",
	"timezone":                            "UTC",
	"bytea_output":                        "hex",
	"standard_conforming_strings":         "on",
	"client_min_messages":                 "warning",
	"client_encoding":                     "UTF8",
	"statement_timeout":                   "0",
	"idle_in_transaction_session_timeout": "0",
	"idle_session_timeout":                "0",
	"default_transaction_isolation":       "read committed",
	"default_transaction_read_only":       "off",
	"default_transaction_deferrable":      "off",
	"transaction_timeout":                 "0",
}

// TestEnvironmentBeatsOtherSettings has a database with settings of its own
// and, from PostgreSQL 17 on, a login event trigger setting the same: the
// settings count more than a client's with the login.
func TestEnvironmentBeatsOtherSettings(t *testing.T) {
	t.Run("database", func(t *testing.T) {
		url := pgtest.Shared(t).NewDatabase(t)
		alter := ""
		for _, name := range known(t, url) {
			alter += "EXECUTE format('ALTER DATABASE %I SET " + name + " TO " + setTo(name) + "', current_database()); "
		}
		pgtest.Exec(t, url, `DO $$ BEGIN `+alter+`END $$`)
		wantEnvironment(t, url)
	})
	t.Run("login event trigger", func(t *testing.T) {
		url := pgtest.Shared(t).NewDatabase(t)
		if version(t, url) < 17 {
			t.Skip("event triggers have no event login before PostgreSQL 17")
		}
		sets := ""
		for _, name := range known(t, url) {
			sets += "PERFORM pg_catalog.set_config('" + name + "', '" + hostile[name] + "', false); "
		}
		pgtest.Exec(t, url,
			`CREATE FUNCTION welcome() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN `+sets+`END $$`,
			`CREATE EVENT TRIGGER welcome ON login EXECUTE FUNCTION welcome()`,
			`ALTER EVENT TRIGGER welcome ENABLE ALWAYS`)
		wantEnvironment(t, url)
	})
}

// setTo is the value of hostile as SQL.
func setTo(name string) string {
	if name == "search_path" {
		return hostile[name] // a list
	}
	return "''" + hostile[name] + "''"
}

// known are the names of the server's settable parameters.
func known(t *testing.T, url string) (names []string) {
	major := version(t, url)
	for name := range hostile {
		switch {
		case name == "transaction_timeout" && major < 17:
		case name == "standard_conforming_strings" && major >= 19: // always on
		default:
			names = append(names, name)
		}
	}
	return names
}

func version(t *testing.T, url string) int {
	conn := must.Get(Connect(pgtest.Context(t), url))(t)
	defer Close(conn)
	return majorVersion(conn)
}

func wantEnvironment(t *testing.T, url string) {
	t.Helper()
	ctx := pgtest.Context(t)
	ordinary := must.Get(Connect(ctx, url))(t)
	defer Close(ordinary)
	store := must.Get(ConnectStore(ctx, url, "a store", map[string]string{"synchronous_commit": "on"}))(t)
	defer Close(store)
	replication := must.Get(ConnectReplication(ctx, url))(t)
	defer Close(replication)
	pooled := must.Get(ConnectPooled(ctx, url))(t)
	defer Close(pooled)
	must.Get(pooled.PgConn().Exec(ctx, "BEGIN; "+Environment).ReadAll())(t)
	for kind, session := range map[string]struct {
		conn        *pgconn.PgConn
		lockTimeout string
	}{
		"ordinary": {ordinary.PgConn(), "5s"}, "store": {store.PgConn(), "5s"},
		"replication": {replication, "0"}, "pooled": {pooled.PgConn(), "0"},
	} {
		wantSetting(ctx, t, kind, session.conn, "lock_timeout", session.lockTimeout)
		for _, name := range known(t, url) {
			if value, ok := ours[name]; ok {
				wantSetting(ctx, t, kind, session.conn, name, value)
			}
		}
	}
}

func wantSetting(ctx context.Context, t *testing.T, kind string, conn *pgconn.PgConn, name, want string) {
	t.Helper()
	got := must.Get(queryText(ctx, conn, "SELECT pg_catalog.current_setting('"+name+"')"))(t)
	if got != want {
		t.Errorf("%s: %s is %q, want %q", kind, name, got, want)
	}
}

// An operator may bound the waits of ordinary statements in the URL.
func TestURLBoundsStatements(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t) + "?lock_timeout=7s&statement_timeout=9s"
	conn := must.Get(Connect(pgtest.Context(t), url))(t)
	defer Close(conn)
	wantSetting(t.Context(), t, "ordinary", conn.PgConn(), "lock_timeout", "7s")
	wantSetting(t.Context(), t, "ordinary", conn.PgConn(), "statement_timeout", "9s")
}
