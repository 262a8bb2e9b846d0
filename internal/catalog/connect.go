package catalog

import (
	"context"
	"maps"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connectTimeout bounds the connection to one host where the URL sets none.
const connectTimeout = 10 * time.Second

// applicationName shows in pg_stat_activity and pg_stat_replication where the
// URL sets none.
const applicationName = "cdc-outbox"

// sessionParams make the text form of values independent of the settings of
// server, database and role (PostgreSQL's own subscriber sets the first three,
// libpqwalreceiver.c), and let the server's warnings through.
var sessionParams = map[string]string{
	"datestyle":           "ISO",
	"intervalstyle":       "postgres",
	"extra_float_digits":  "3",
	"timezone":            "UTC",
	"bytea_output":        "hex",
	"client_min_messages": "warning",
	"client_encoding":     "UTF8",
}

// Connect opens an ordinary connection for catalog queries. Its errors carry a
// failure.Class. A statement fails, and the connection is closed, when the
// server is silent for answerTimeout, unless Patient announced it. A statement
// that waits for a lock fails after lockTimeout.
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	return ConnectBeside(ctx, url, nil)
}

// ConnectBeside is Connect to the address that a stream comes from. It does not
// ask other hosts of the URL. If the URL does not lead to that address any
// more, or at is nil, it is Connect.
func ConnectBeside(ctx context.Context, url string, at net.Addr) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, Classify(err)
	}
	prepare(&cfg.Config)
	// Catalog queries are few; the simple protocol also works through poolers.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	setLockTimeout(&cfg.Config)
	return openAt(ctx, cfg, answerTimeout, at)
}

// ConnectStore opens an ordinary connection for another purpose than to read
// what is to be published, under a name of its own and with run-time parameters.
// Otherwise it is as Connect.
func ConnectStore(ctx context.Context, url, name string, params map[string]string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, Classify(err)
	}
	delete(cfg.RuntimeParams, "replication")
	maps.Copy(cfg.RuntimeParams, params)
	cfg.RuntimeParams["application_name"] = name
	prepareOwn(&cfg.Config)
	setLockTimeout(&cfg.Config)
	return open(ctx, cfg, answerTimeout)
}

// setLockTimeout makes a statement that waits for a lock fail, so that it is
// not taken for a server that does not answer. In the URL an operator may set
// another timeout, or turn it off.
func setLockTimeout(cfg *pgconn.Config) {
	if cfg.RuntimeParams["lock_timeout"] == "" {
		cfg.RuntimeParams["lock_timeout"] = strconv.FormatInt(lockTimeout.Milliseconds(), 10)
	}
}

// ConnectReplication opens a logical replication connection (a walsender). Its
// errors carry a failure.Class. It has no lockTimeout, because the creation of
// a slot waits for transactions by their locks. Otherwise it is as Connect,
// until wal.Open takes the connection over.
func ConnectReplication(ctx context.Context, url string) (*pgconn.PgConn, error) {
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, Classify(err)
	}
	prepare(cfg)
	cfg.RuntimeParams["replication"] = "database"
	return openReplication(ctx, cfg)
}

func prepare(cfg *pgconn.Config) {
	for name, value := range sessionParams {
		cfg.RuntimeParams[name] = value
	}
	prepareOwn(cfg)
}

// prepareOwn sets what every connection of ours has.
func prepareOwn(cfg *pgconn.Config) {
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = applicationName
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
}
