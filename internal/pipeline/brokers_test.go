package pipeline

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// askOften makes probes impatient. Not for parallel tests.
func askOften(t *testing.T) {
	t.Helper()
	probePace = sink.Pace{Every: 100 * time.Millisecond, Timeout: time.Second, Silence: time.Second, Refused: time.Second}
	t.Cleanup(func() { probePace = sink.UsualPace })
}

// inMode is the configuration of a pipeline in the mode, with an outbox and a
// broker of its own.
func inMode(t *testing.T, name, mode string) (config.Config, *kafkatest.Broker, string) {
	t.Helper()
	db := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, db, polledOutbox)
	broker := kafkatest.Start(t)
	cfg := kafkaConfig(t, db, name+"_"+mode, broker.Brokers...)
	cfg.Source.Mode, cfg.Event.PositionHeaders = mode, mode == config.ModeWAL
	return cfg, broker, db
}

// The outbox is quiet all the time: no event is delivered, and only the probe can notice.
func TestDeadBrokerShowsWhileTheOutboxIsQuiet(t *testing.T) {
	askOften(t)
	for _, mode := range []string{config.ModeWAL, config.ModePoll} {
		t.Run(mode, func(t *testing.T) {
			cfg, broker, _ := inMode(t, "probe", mode)
			all := []running{start(t, cfg)}
			if mode == config.ModeWAL {
				all[0].active(t)
				all = append(all, start(t, cfg))
				all[1].standsBy(t)
			}
			expect := func(what string, ready int, connected string) {
				t.Helper()
				for i, c := range all {
					await.Until(t, fmt.Sprintf("instance %d to be %s", i, what), func() bool { return code(c.base+"/readyz") == ready })
					await.Until(t, fmt.Sprintf("the metric of instance %d", i), c.shows(`cdc_outbox_connected{side="kafka"} `+connected))
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
				await.Until(t, fmt.Sprintf("the log of instance %d", i), func() bool { // written a moment after
					return c.logs.FilterMessage("Kafka does not answer; events wait").Len() > 0
				})
			}
			broker.Resume(t)
			expect("ready again", http.StatusOK, "1")
		})
	}
}

// A silent broker with open ports, like a listener for another protocol, also shows while
// the checkpoint store opens.
func TestSilentBrokerShowsBeforeTheStoreIsOpen(t *testing.T) {
	askOften(t)
	silent, _ := kafkatest.Silent(t)
	cfg := kafkaConfig(t, pgtest.Shared(t).NewDatabase(t), "silent", silent)
	cfg.Checkpoint.Store = store.StoreKafka
	c := start(t, cfg)
	const line = "Kafka does not answer; events wait"
	await.Until(t, "a line in the log", func() bool { return c.logs.FilterMessage(line).Len() > 0 })
	if remedy, _ := c.logs.FilterMessage(line).All()[0].ContextMap()["remedy"].(string); !strings.Contains(remedy, silent) {
		t.Errorf("the remedy is %q", remedy)
	}
	for _, path := range []string{"/readyz", "/status"} {
		if got := body(c.base + path); !strings.Contains(got, "Kafka: no broker has answered for") {
			t.Errorf("%s = %s", path, got)
		}
	}
}

// shows tells whether the metrics have a line.
func (r running) shows(line string) func() bool {
	return func() bool { return strings.Contains(body(r.base+"/metrics"), "\n"+line+"\n") }
}

// The checkpoint store is away. Told of Kafka, an operator would look in the wrong place.
func TestBrokersShowBeforeTheCheckpointStoreIsThere(t *testing.T) {
	nobody := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	must.OK(t, nobody.Close())
	cfg := kafkaConfig(t, "postgres://u@"+nobody.Addr().String()+"/db", "no_store", kafkatest.Start(t).Brokers...)
	cfg.Checkpoint.Store = store.StorePostgres
	c := start(t, cfg)
	await.Until(t, "the store to be missed", func() bool {
		return c.logs.FilterMessage("checkpoint store is not available, will retry").Len() > 0 &&
			strings.Contains(body(c.base+"/status"), "start PostgreSQL, or correct")
	})
	await.Until(t, "the brokers to be there", c.shows(`cdc_outbox_connected{side="kafka"} 1`))
}

// A spare does not report the topics it waited for while active.
func TestSpareForgetsTheTopicsThatItWaitedFor(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, db, polledOutbox)
	line, behindURL := pgtest.Behind(t, db)
	cfg := kafkaConfig(t, db, "forgetful", kafkatest.Start(t).Brokers...)
	behind := cfg
	behind.Source.URL = setting.Secret(behindURL)

	first := start(t, behind).active(t)
	pgtest.Exec(t, db, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'o-1', 'Placed', '{}')`)
	await.Until(t, "the topic to be missed", first.shows("cdc_outbox_topics_missing 1"))
	line.Refuse(true)
	line.Cut()
	second := start(t, cfg)
	await.Until(t, "the second to miss it", second.shows("cdc_outbox_topics_missing 1"))
	line.Refuse(false)
	first.standsBy(t)
	await.Until(t, "the first to forget it", first.shows("cdc_outbox_topics_missing 0"))
}

// A stop does not create the topic an event waits for. The stop ends without the event,
// with any drain timeout, and the next start has the event again.
func TestStopDoesNotWaitForAMissingTopic(t *testing.T) {
	for _, mode := range []string{config.ModeWAL, config.ModePoll} {
		t.Run(mode, func(t *testing.T) {
			cfg, broker, db := inMode(t, "drain", mode)
			cfg.Source.Poll.ClaimTimeout, cfg.Errors.DrainTimeout = time.Hour, time.Hour
			c := start(t, cfg).active(t)
			pgtest.Exec(t, db, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'o-1', 'Placed', '{}')`)
			await.Until(t, "the topic to be missed", func() bool { return strings.Contains(body(c.base+"/readyz"), "topic does not exist") })
			must.OK(t, c.stop())
			broker.CreateTopic(t, "outbox.event.order", 1, nil)
			c = start(t, cfg)
			await.Until(t, "the event", c.shows(`cdc_outbox_events_published_total{topic="outbox.event.order"} 1`))
		})
	}
}

// The outbox is quiet: no delivery can notice the loss of the topics in use.
func TestMode72TopicsThatAreGoneShowWhileTheOutboxIsQuiet(t *testing.T) {
	askOften(t)
	for _, mode := range []string{config.ModeWAL, config.ModePoll} {
		t.Run(mode, func(t *testing.T) {
			cfg, broker, db := inMode(t, "topics", mode)
			cfg.Errors.OnBadEvent, cfg.Errors.DeadLetterTopic = transform.BadEventDeadLetter, "dead"
			topics := []string{"outbox.event.order", "dead"}
			if mode == config.ModeWAL {
				cfg.Checkpoint.Store = store.StoreKafka
				topics = append(topics, wiring.CheckpointTopic(&cfg))
			}
			broker.CreateTopic(t, "outbox.event.order", 1, nil)
			broker.CreateTopic(t, "dead", 1, nil)
			c := start(t, cfg)
			await.Until(t, "ready", func() bool { return code(c.base+"/readyz") == http.StatusOK })
			pgtest.Exec(t, db, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'o-1', 'Placed', '{}')`)
			await.Until(t, "the event", c.shows(`cdc_outbox_events_published_total{topic="outbox.event.order"} 1`))
			for _, topic := range topics {
				await.Until(t, "ready", func() bool { return code(c.base+"/readyz") == http.StatusOK })
				admin := kadm.NewClient(broker.Client(t))
				must.Get(admin.DeleteTopic(t.Context(), topic))(t)
				await.Until(t, "the reason for "+topic, func() bool { return strings.Contains(body(c.base+"/readyz"), "topic does not exist: "+topic) })
				await.Until(t, "the metric", c.shows("cdc_outbox_topics_unusable 1"))
				if got := body(c.base + "/status"); !strings.Contains(got, "topic_errors") || !strings.Contains(got, "--create --topic '"+topic+"'") {
					t.Errorf("/status = %s", got)
				}
				if c.logs.FilterMessage("a topic in use cannot be written to").Len() == 0 {
					t.Error("nothing is logged")
				}
				broker.CreateTopic(t, topic, 1, map[string]string{"cleanup.policy": "compact"})
			}
			await.Until(t, "ready again", func() bool { return code(c.base+"/readyz") == http.StatusOK })
		})
	}
}
