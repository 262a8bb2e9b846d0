package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// Somebody else's functions in public take the place of PostgreSQL's in no mode and with no
// store.
func TestRunCallsNoFunctionsOfOthers(t *testing.T) {
	for _, mode := range []string{config.ModeWAL, config.ModePoll} {
		t.Run(mode, func(t *testing.T) {
			db := pgtest.Shared(t).NewDatabase(t)
			pgtest.Exec(t, db, `CREATE TABLE outbox (id bigserial PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb,
				published boolean NOT NULL DEFAULT false, created_at timestamptz NOT NULL DEFAULT clock_timestamp())`)
			calls := pgtest.Overload(t, db)
			cfg := stdoutConfig(db)
			cfg.Source.Mode = mode
			cfg.Source.Slot = "overload"
			cfg.Checkpoint.Store = store.StorePostgres
			if mode == config.ModeWAL {
				cfg.Retention.After = time.Hour
			}
			c := start(t, cfg)
			await.Until(t, "readiness", c.ready)
			pgtest.Exec(t, db, `INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', 'o-1', 'Placed', '{}')`)
			await.Until(t, "the event", func() bool { return strings.Contains(c.stdout.String(), "\n") })
			must.OK(t, c.stop())
			if n := calls(); n > 0 {
				t.Errorf("run called functions of somebody else %d times", n)
			}
		})
	}
}
