package catalog

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/sqltext"
)

// ConnectPooled is Connect for statements that a pooler may hand to other
// sessions from one transaction to the next. Such poolers refuse most start-up
// parameters; so values are in the text form that Row has only in transactions
// in which TextForm was run. A server that is silent for pooledTimeout breaks it.
func ConnectPooled(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, Classify(err)
	}
	prepareOwn(&cfg.Config)
	cfg.RuntimeParams["client_encoding"] = sessionParams["client_encoding"]
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	return open(ctx, cfg, pooledTimeout)
}

// pooledTimeout is the longest silence on such a connection. It leaves room for
// the statements that lock and mark rows of a large table, and for the time that
// notifications are listened for; both have shorter limits of their own.
const pooledTimeout = 40 * time.Second

// TextForm is the statement that gives values the text form of the stream until
// the transaction ends.
var TextForm = func() string {
	names := slices.Sorted(maps.Keys(sessionParams))
	calls := make([]string, 0, len(names))
	for _, name := range names {
		if name != "client_encoding" { // of the connection
			calls = append(calls, "set_config("+sqltext.Literal(name)+", "+sqltext.Literal(sessionParams[name])+", true)")
		}
	}
	return "SELECT " + strings.Join(calls, ", ")
}()
