package wal

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ConnectPooled is Connect for statements that a pooler may hand to other
// sessions from one transaction to the next. Such poolers refuse most start-up
// parameters; so values are in the text form that Row has only in transactions
// in which TextForm was run.
func ConnectPooled(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, classify(err)
	}
	prepareOwn(&cfg.Config)
	cfg.RuntimeParams["client_encoding"] = sessionParams["client_encoding"]
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, connectFailed(err, &cfg.Config)
	}
	return conn, nil
}

// TextForm is the statement that gives values the text form of the stream until
// the transaction ends.
var TextForm = func() string {
	names := slices.Sorted(maps.Keys(sessionParams))
	calls := make([]string, 0, len(names))
	for _, name := range names {
		if name != "client_encoding" { // of the connection
			calls = append(calls, "set_config("+quoteLiteral(name)+", "+quoteLiteral(sessionParams[name])+", true)")
		}
	}
	return "SELECT " + strings.Join(calls, ", ")
}()
