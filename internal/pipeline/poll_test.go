package pipeline

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
)

var _ poll.Metrics = (*metrics.Metrics)(nil)

func TestRunPolls(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, db, `CREATE TABLE outbox (id bigserial PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb,
		created_at timestamptz DEFAULT now(), published boolean NOT NULL DEFAULT false)`)
	cfg := stdoutConfig(db)
	cfg.Source.Mode = config.ModePoll
	cfg.Event.PositionHeaders = false
	c := start(t, cfg)
	wait(t, "readiness", func() bool { return code(c.base+"/readyz") == http.StatusOK })
	pgtest.Exec(t, db, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'o-1', 'Placed', '{"n": 1}')`)
	wait(t, "the event", func() bool { return strings.Contains(c.stdout.String(), `"key":"o-1"`) })
	if got := code(c.base + "/status"); got != http.StatusOK {
		t.Errorf("/status answers %d", got)
	}
	if err := c.stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

const polledOutbox = `CREATE TABLE outbox (id bigserial PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb,
	created_at timestamptz DEFAULT now(), published boolean NOT NULL DEFAULT false)`
