package pipeline

import (
	"fmt"
	"net/http"
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

// askOften makes probes impatient. Tests beside each other must not use it.
func askOften(t *testing.T) {
	t.Helper()
	probePace = sink.Pace{Every: 100 * time.Millisecond, Timeout: time.Second, Silence: time.Second, Refused: time.Second}
	t.Cleanup(func() { probePace = sink.UsualPace })
}

// The outbox is quiet all the time: nothing is delivered, and nothing but the
// probe can notice.
func TestDeadBrokerShowsWhileTheOutboxIsQuiet(t *testing.T) {
	askOften(t)
	for _, mode := range []string{config.ModeWAL, config.ModePoll} {
		t.Run(mode, func(t *testing.T) {
			db := pgtest.Shared(t).NewDatabase(t)
			pgtest.Exec(t, db, polledOutbox)
			broker := kafkatest.Start(t)
			cfg := stdoutConfig(db)
			cfg.Sink = config.Sink{Kafka: sink.DefaultOptions()}
			cfg.Sink.Kafka.Brokers = broker.Brokers
			cfg.Source.Mode, cfg.Source.Slot = mode, "probe_"+mode
			cfg.Event.PositionHeaders = mode == config.ModeWAL
			cfg.Checkpoint.Store, cfg.Checkpoint.Path = store.StoreFile, filepath.Join(t.TempDir(), "checkpoint")
			all := []running{start(t, cfg)}
			if mode == config.ModeWAL {
				wait(t, "the first to be active", func() bool { return all[0].role() == "active" })
				all = append(all, start(t, cfg))
				wait(t, "the second to stand by", func() bool { return all[1].role() == "standby" })
			}
			expect := func(what string, ready int, connected string) {
				t.Helper()
				for i, c := range all {
					wait(t, fmt.Sprintf("instance %d to be %s", i, what), func() bool { return code(c.base+"/readyz") == ready })
					wait(t, fmt.Sprintf("the metric of instance %d", i), func() bool {
						return strings.Contains(body(c.base+"/metrics"), `cdc_outbox_connected{side="kafka"} `+connected)
					})
				}
			}
			expect("ready", http.StatusOK, "1")
			broker.Stop(t)
			expect("not ready", http.StatusServiceUnavailable, "0")
			for i, c := range all {
				if got := body(c.base + "/readyz"); !strings.Contains(got, "Kafka: no broker has answered for") {
					t.Errorf("instance %d: /readyz = %s", i, got)
				}
				if got := body(c.base + "/status"); !strings.Contains(got, "kafka_error") {
					t.Errorf("instance %d: /status = %s", i, got)
				}
				if n := c.logs.FilterMessage("Kafka does not answer; events wait").Len(); n == 0 {
					t.Errorf("instance %d logs nothing", i)
				}
			}
			broker.Resume(t)
			expect("ready again", http.StatusOK, "1")
		})
	}
}

// What takes connections and says nothing, as a listener for another protocol
// does, is waited for while the checkpoint store opens, too.
func TestSilentBrokerShowsBeforeTheStoreIsOpen(t *testing.T) {
	askOften(t)
	cfg := stdoutConfig(pgtest.Shared(t).NewDatabase(t))
	silent, _ := kafkatest.Silent(t)
	cfg.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	cfg.Sink.Kafka.Brokers = []string{silent}
	cfg.Checkpoint.Store = store.StoreKafka
	c := start(t, cfg)
	const line = "Kafka does not answer; events wait"
	wait(t, "a line in the log", func() bool { return c.logs.FilterMessage(line).Len() == 1 })
	if remedy, _ := c.logs.FilterMessage(line).All()[0].ContextMap()["remedy"].(string); !strings.Contains(remedy, silent) {
		t.Errorf("the remedy is %q", remedy)
	}
	for _, path := range []string{"/readyz", "/status"} {
		if got := body(c.base + path); !strings.Contains(got, "Kafka: no broker has answered for") {
			t.Errorf("%s = %s", path, got)
		}
	}
}
