package catalog

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// SyncStandbys is the server's setting for the confirmations a commit waits for.
type SyncStandbys struct {
	Setting     string // synchronous_standby_names
	Application string // our application_name
}

// ReadSyncStandbys reads the setting on an ordinary connection, with the same
// application_name as a replication connection of the same URL.
// (pg_stat_replication shows them only to roles with pg_read_all_stats.)
func ReadSyncStandbys(ctx context.Context, conn *pgx.Conn) (s SyncStandbys, err error) {
	err = conn.QueryRow(ctx, `SELECT current_setting('synchronous_standby_names'), current_setting('application_name')`).
		Scan(&s.Setting, &s.Application)
	if err != nil {
		return s, fmt.Errorf("read synchronous_standby_names: %w", err)
	}
	return s, nil
}

// standbyToken is a parenthesis or a name, quoted or not (syncrep_scanner.l).
var standbyToken = regexp.MustCompile(`"(?:[^"]|"")*"|[()]|[^\s,()"]+`)

// Ours reports whether the server takes a replication connection of ours for a
// synchronous standby, or for a candidate. Walsenders for logical replication
// are included.
func (s SyncStandbys) Ours() bool {
	names := standbyToken.FindAllString(s.Setting, -1)
	for i, name := range names {
		if name == "(" { // before: the method, FIRST 2, ANY 1, or a number
			names = names[i+1:]
			break
		}
	}
	for _, name := range names {
		if strings.HasPrefix(name, `"`) {
			name = strings.ReplaceAll(name[1:len(name)-1], `""`, `"`)
		}
		if name == "*" || strings.EqualFold(name, s.Application) {
			return true
		}
	}
	return false
}

// Circular is why the connector cannot wait for commits to be visible: the commits
// wait for the connector. Otherwise nil.
func (s SyncStandbys) Circular() error {
	if !s.Ours() {
		return nil
	}
	return failure.Configf(CommitsWaitRemedy, "source.visibility: wait would wait for ever: commits wait until the connector "+
		"has confirmed them (synchronous_standby_names is %s, application_name %s), and the connector until they can be read", s.Setting, s.Application)
}

// Text for an operator.
const (
	CommitsWait = "PostgreSQL takes the connector for a synchronous standby: commits wait until it has confirmed their log, " +
		"which takes seconds, and as long as Kafka is away; those of checkpoints in the same server may wait for ever"
	CommitsWaitRemedy = "name the physical standbys in synchronous_standby_names instead of '*', or give the connector another application_name in source.url"
)
