package connector

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/config"
	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// Brokers go down while nothing is written and nothing is saved with them: an
// event committed now would not get through, and a spare could not take over.
func TestReadinessSeesBrokersThatAreDownWhileTheOutboxIsQuiet(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, db, `CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)`)
	polled := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, polled, polledOutbox)
	broker := kafkatest.Start(t)
	to := config.Sink{Kafka: config.DefaultKafka()}
	to.Kafka.Brokers = broker.Brokers

	cfg := stdoutConfig(db)
	cfg.Sink = to
	cfg.Source.Slot = "connector_quiet"
	cfg.Checkpoint.Store, cfg.Checkpoint.Path = config.StoreFile, filepath.Join(t.TempDir(), "checkpoint")
	polling := stdoutConfig(polled)
	polling.Sink = to
	polling.Source.Mode = config.ModePoll
	polling.Event.PositionHeaders = false

	active := start(t, cfg)
	wait(t, "an active instance", func() bool { return active.role() == "active" })
	spare := start(t, cfg)
	wait(t, "a spare", func() bool { return spare.role() == "standby" })
	all := map[string]running{"active": active, "spare": spare, "polling": start(t, polling)}
	ready := func(r running) func() bool {
		return func() bool { return code(r.base+"/readyz") == http.StatusOK }
	}
	for name, r := range all {
		wait(t, "readiness: "+name, ready(r))
	}
	broker.Stop(t)
	for name, r := range all {
		wait(t, "the cause: "+name, func() bool { return strings.Contains(body(r.base+"/readyz"), "Kafka has not answered") })
	}
	broker.Resume(t)
	for name, r := range all {
		wait(t, "readiness again: "+name, ready(r))
	}
}
