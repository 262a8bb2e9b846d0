package catalog

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connectTimeout bounds the connection to a single host where the URL sets
// none.
const connectTimeout = 10 * time.Second

// applicationName shows in pg_stat_activity and pg_stat_replication where the
// URL sets none.
const applicationName = "cdc-outbox"

// Connect opens an ordinary connection for catalog queries. Names without a
// schema in its statements are PostgreSQL's own. The errors carry a
// failure.Class. A statement fails, and the connection is closed, when the
// server is silent for answerTimeout, unless Patient announced it. A statement
// waiting for a lock fails after lockTimeout.
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	return ConnectBeside(ctx, url, nil)
}

// ConnectBeside is Connect to the address a stream comes from, without asking
// other hosts of the URL. If the URL no longer leads to the address, or at is
// nil, it is Connect.
func ConnectBeside(ctx context.Context, url string, at net.Addr) (*pgx.Conn, error) {
	return connectAs(ctx, url, at, func(cfg *pgx.ConnConfig) environment {
		// Catalog queries are few; the simple protocol also works through poolers.
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
		cfg.StatementCacheCapacity, cfg.DescriptionCacheCapacity = 0, 0 // never used in this mode, and 80 kB
		return nil
	})
}

// ConnectWatch is ConnectBeside for the same few catalog queries again and again. The
// server parses and plans each once: both take several times as long as the rest. The
// first time, a statement takes another round trip. Not for statements on a user's
// table: a plan made for the empty table would stay.
func ConnectWatch(ctx context.Context, url string, at net.Addr) (*pgx.Conn, error) {
	return connectAs(ctx, url, at, func(cfg *pgx.ConnConfig) environment {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
		cfg.StatementCacheCapacity, cfg.DescriptionCacheCapacity = watched, 0
		return environment{"plan_cache_mode": "force_generic_plan"} // PostgreSQL's default plans anew for the first five times at least
	})
}

// watched is the most statements of a connection of ConnectWatch that are kept.
const watched = 16

// connectAs opens an ordinary connection, with the settings of mode.
func connectAs(ctx context.Context, url string, at net.Addr, mode func(*pgx.ConnConfig) environment) (*pgx.Conn, error) {
	cfg, login, err := parse(url)
	if err != nil {
		return nil, err
	}
	prepare(&cfg.Config)
	env := ordinary(&cfg.Config).joined(mode(cfg))
	env.login(&cfg.Config)
	return openAt(ctx, cfg, login, env, answerTimeout, at)
}

// ConnectStore opens an ordinary connection for other purposes than reading
// events, with a separate name and run-time parameters. Otherwise it is as
// Connect.
func ConnectStore(ctx context.Context, url, name string, params map[string]string) (*pgx.Conn, error) {
	cfg, login, err := parse(url)
	if err != nil {
		return nil, err
	}
	delete(cfg.RuntimeParams, "replication")
	cfg.RuntimeParams["application_name"] = name
	prepare(&cfg.Config)
	env := ordinary(&cfg.Config).joined(params)
	env.login(&cfg.Config)
	return open(ctx, cfg, login, env, answerTimeout)
}

// ordinary is the environment of an ordinary connection. A statement waiting
// for a lock fails before the server counts as silent. In the URL an operator
// may set another lock_timeout or statement_timeout.
func ordinary(cfg *pgconn.Config) environment {
	env := everywhere.joined(environment{"lock_timeout": strconv.FormatInt(lockTimeout.Milliseconds(), 10)})
	for _, name := range []string{"lock_timeout", "statement_timeout"} {
		if value := cfg.RuntimeParams[name]; value != "" {
			env[name] = value
		}
	}
	return env
}

// ConnectReplication opens a logical replication connection (a walsender). The
// errors carry a failure.Class. The session has no lock_timeout, not even the
// role's: the creation of a slot waits for transactions by their locks.
// Otherwise it is as Connect, until wal.Open takes the connection over.
func ConnectReplication(ctx context.Context, url string) (*pgconn.PgConn, error) {
	cfg, login, err := parse(url)
	if err != nil {
		return nil, err
	}
	prepare(&cfg.Config)
	cfg.RuntimeParams["replication"] = "database"
	env := everywhere.joined(noLockTimeout)
	env.login(&cfg.Config)
	return openReplication(ctx, &cfg.Config, login, env)
}

// parse reads a connection string as libpq does, with the files named there, and
// the login.
func parse(url string) (*pgx.ConnConfig, Login, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, Login{}, Classify(err)
	}
	login, err := loginOf(&cfg.Config)
	if err == nil && login.URL.Changes() {
		cfg, err = login.reread()
	}
	if err != nil {
		return nil, login, err
	}
	if _, err := adapt(&cfg.Config); err != nil {
		return nil, login, fmt.Errorf("source.url: %w", err)
	}
	return cfg, login, login.secure(&cfg.Config)
}

// prepare sets the options of every connection of ours.
func prepare(cfg *pgconn.Config) {
	cfg.RuntimeParams["client_encoding"] = "UTF8"
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = applicationName
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
}
