package outbox_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap/zaptest"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/outbox"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// runConnector runs a connector until the test ends, and returns once the slot is
// read. change adapts the configuration.
func runConnector(t *testing.T, url string, broker *kafkatest.Broker, change func(*config.Config)) {
	t.Helper()
	cfg := config.Default()
	cfg.Source.URL = setting.Secret(url)
	cfg.Source.Slot = connect(t, url).Config().Database
	cfg.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	cfg.Sink.Kafka.Brokers = broker.Brokers
	cfg.Checkpoint.Store = store.StoreNone
	cfg.HTTP.Listen = ""
	if change != nil {
		change(&cfg)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- pipeline.Run(ctx, pipeline.Options{
			Config: &cfg, Log: zaptest.NewLogger(t), Stdout: io.Discard,
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("connector: %v", err)
		}
	})
	if cfg.Source.Mode == config.ModePoll {
		return
	}
	// The slot is active during its creation, too, and would miss everything
	// committed then.
	awaitTrue(t, url, "the slot is read", `SELECT count(*) > 0 FROM pg_replication_slots
		WHERE slot_name = $1 AND active AND confirmed_flush_lsn IS NOT NULL`, cfg.Source.Slot)
}

// TestWrittenEventsArrive goes all the way: library, PostgreSQL, connector,
// Kafka.
func TestWrittenEventsArrive(t *testing.T) {
	for name, tt := range map[string]struct {
		ddl   []string
		opts  outbox.Options
		table pg.Table
	}{
		"table":        {[]string{outbox.Schema}, outbox.Options{}, pg.Table{Schema: "public", Name: "outbox"}},
		"partitions":   {partitioned(t), outbox.Options{}, pg.Table{Schema: "public", Name: "outbox"}},
		"default only": {[]string{outbox.PartitionedSchema}, outbox.Options{}, pg.Table{Schema: "public", Name: "outbox"}},
		"bytes": {[]string{`CREATE SCHEMA app`, `CREATE TABLE app.events (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text,
				event_type text, payload bytea, headers jsonb)`},
			outbox.Options{Payload: outbox.Bytes, Table: outbox.Table{Schema: "app", Name: "events", Columns: outbox.SnakeCase()}},
			pg.Table{Schema: "app", Name: "events"}},
	} {
		t.Run(name, func(t *testing.T) {
			url := newDB(t, tt.ddl...)
			broker := kafkatest.Start(t)
			broker.CreateTopic(t, "outbox.event.order", 1, nil)
			runConnector(t, url, broker, func(c *config.Config) { c.Source.Tables = []pg.Table{tt.table} })

			tx := begin(t, url)
			const n = 20
			events := someEvents(n)
			ids, err := newWriter(t, tt.opts).Write(t.Context(), outbox.PGX(tx), events...)
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			records := broker.Consume(t, []string{"outbox.event.order"}, kafkatest.Count(n))
			for i, r := range records {
				wantRecord(t, r, ids[i].String(), events[i], `{"id": 42}`)
			}
		})
	}
}

// TestEmittedEventsArrive does so without a table.
func TestEmittedEventsArrive(t *testing.T) {
	for name, payload := range map[string]outbox.PayloadType{"JSON": outbox.JSONB, "bytes": outbox.Bytes} {
		t.Run(name, func(t *testing.T) {
			url := newDB(t)
			broker := kafkatest.Start(t)
			broker.CreateTopic(t, "outbox.event.order", 1, nil)
			runConnector(t, url, broker, func(c *config.Config) {
				c.Source.Mode, c.Source.Tables = config.ModeMessage, nil
			})

			const n = 20
			w := newWriter(t, outbox.Options{Payload: payload})
			tx := begin(t, url)
			events := someEvents(n)
			one, err := w.Emit(t.Context(), outbox.PGX(tx), events[0])
			if err != nil {
				t.Fatal(err)
			}
			rest, err := w.Emit(t.Context(), outbox.PGX(tx), events[1:]...)
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			records := broker.Consume(t, []string{"outbox.event.order"}, kafkatest.Count(n))
			for i, r := range records {
				wantRecord(t, r, append(one, rest...)[i].String(), events[i], `{"id": 42}`)
			}
		})
	}
}

// someEvents returns n events of three keys.
func someEvents(n int) []outbox.Event {
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = outbox.Event{
			AggregateType: "order", AggregateID: fmt.Sprint("o-", i%3), Type: "Placed", Payload: []byte(`{"id": 42}`),
			Headers: map[string]string{"tenant": "Käse & \"Co\"", "n": fmt.Sprint(i)},
		}
	}
	return events
}

// partitioned is a table with partitions for today and tomorrow.
func partitioned(t *testing.T) []string {
	t.Helper()
	today, tomorrow := presentPartitions(t, outbox.Table{}, outbox.Daily)
	return []string{outbox.PartitionedSchema, today.SQL(), tomorrow.SQL()}
}

func wantRecord(t *testing.T, r *kgo.Record, id string, e outbox.Event, value string) {
	t.Helper()
	if string(r.Key) != e.AggregateID || string(r.Value) != value {
		t.Errorf("key %s, value %s, want %s, %s", r.Key, r.Value, e.AggregateID, value)
	}
	want := map[string]string{"id": id, "eventType": e.Type}
	maps.Copy(want, e.Headers)
	for _, h := range r.Headers {
		if w, ok := want[h.Key]; ok && w != string(h.Value) {
			t.Errorf("header %s is %s, want %s", h.Key, h.Value, w)
		}
		delete(want, h.Key)
	}
	if len(want) > 0 {
		t.Errorf("record without headers %v", want)
	}
}
