package pipeline

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// A stop does not create the topic that an event waits for. It ends without the
// event, however long a drain may take, and the next start has it again.
func TestStopDoesNotWaitForAMissingTopic(t *testing.T) {
	for _, mode := range []string{config.ModeWAL, config.ModePoll} {
		t.Run(mode, func(t *testing.T) {
			db := pgtest.Shared(t).NewDatabase(t)
			pgtest.Exec(t, db, polledOutbox)
			broker := kafkatest.Start(t)
			cfg := stdoutConfig(db)
			cfg.Sink = config.Sink{Kafka: sink.DefaultOptions()}
			cfg.Sink.Kafka.Brokers = broker.Brokers
			cfg.Source.Mode, cfg.Source.Slot = mode, "drain_"+mode
			cfg.Source.Poll.ClaimTimeout = time.Hour
			cfg.Event.PositionHeaders = false
			cfg.Checkpoint.Store, cfg.Checkpoint.Path = store.StoreFile, filepath.Join(t.TempDir(), "checkpoint")
			cfg.Errors.DrainTimeout = time.Hour
			c := start(t, cfg)
			wait(t, "the connector to be active", func() bool { return c.role() == "active" })
			pgtest.Exec(t, db, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'o-1', 'Placed', '{}')`)
			wait(t, "the topic to be missed", func() bool { return strings.Contains(body(c.base+"/readyz"), "topic does not exist") })
			if err := c.stop(); err != nil {
				t.Fatalf("Run = %v", err)
			}
			broker.CreateTopic(t, "outbox.event.order", 1, nil)
			c = start(t, cfg)
			wait(t, "the event", func() bool {
				return strings.Contains(body(c.base+"/metrics"), `cdc_outbox_events_published_total{topic="outbox.event.order"} 1`)
			})
		})
	}
}
