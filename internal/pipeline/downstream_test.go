package pipeline

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// shows tells whether the metrics have a line.
func (r running) shows(line string) func() bool {
	return func() bool { return strings.Contains(body(r.base+"/metrics"), "\n"+line+"\n") }
}

// An operator who is told that Kafka is away, as long as the checkpoint store
// is, looks in the wrong place.
func TestBrokersShowBeforeTheCheckpointStoreIsThere(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := nobody.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := stdoutConfig("postgres://u@" + nobody.Addr().String() + "/db")
	cfg.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	cfg.Sink.Kafka.Brokers = kafkatest.Start(t).Brokers
	cfg.Source.Slot = "no_store"
	cfg.Checkpoint.Store = store.StorePostgres
	c := start(t, cfg)
	wait(t, "the store to be missed", func() bool {
		return c.logs.FilterMessage("checkpoint store is not available, will retry").Len() > 1
	})
	wait(t, "the brokers to be there", c.shows(`cdc_outbox_connected{side="kafka"} 1`))
}

// What an instance waited for is not what it waits for as a spare.
func TestSpareForgetsTheTopicsThatItWaitedFor(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, db, polledOutbox)
	line, behindURL := pgtest.Behind(t, db)
	broker := kafkatest.Start(t)
	cfg := stdoutConfig(db)
	cfg.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	cfg.Sink.Kafka.Brokers = broker.Brokers
	cfg.Source.Slot = "forgetful"
	cfg.Checkpoint.Store, cfg.Checkpoint.Path = store.StoreFile, filepath.Join(t.TempDir(), "checkpoint")
	behind := cfg
	behind.Source.URL = setting.Secret(behindURL)

	first := start(t, behind)
	wait(t, "the first to be active", func() bool { return first.role() == "active" })
	pgtest.Exec(t, db, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'o-1', 'Placed', '{}')`)
	wait(t, "the topic to be missed", first.shows("cdc_outbox_topics_missing 1"))
	line.Refuse(true)
	line.Cut()
	second := start(t, cfg)
	wait(t, "the second to miss it", second.shows("cdc_outbox_topics_missing 1"))
	line.Refuse(false)
	wait(t, "the first to stand by", func() bool { return first.role() == "standby" })
	wait(t, "the first to forget it", first.shows("cdc_outbox_topics_missing 0"))
}
