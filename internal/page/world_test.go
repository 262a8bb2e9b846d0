package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connector is a running connector.
type connector struct {
	base string // of its URLs, without a slash at the end
	stop func()
}

// start runs a connector until the test ends.
func start(t *testing.T, cfg config.Config) connector {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		err := pipeline.Run(ctx, pipeline.Options{Config: &cfg, Log: zap.New(core), Version: "v1.4.0",
			Stdout: io.Discard, Invocation: invocation.Invocation{File: "outbox.yaml"}})
		if err != nil && ctx.Err() == nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop := func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	var address string
	await.Until(t, "the HTTP address", func() bool {
		for _, entry := range logs.FilterMessage("serving HTTP").All() {
			address = entry.ContextMap()["address"].(string)
		}
		return address != ""
	})
	return connector{"http://" + address, stop}
}

// configure creates the table and describes a connector for it.
func configure(t *testing.T, db string, broker *kafkatest.Broker, table string) config.Config {
	t.Helper()
	pgtest.Exec(t, db, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
		aggregatetype text, aggregateid text, type text, payload jsonb)`, table))
	cfg := config.Default()
	cfg.Source.URL = setting.Secret(db)
	cfg.Source.Tables = []pg.Table{{Schema: "public", Name: table}}
	cfg.Source.Slot, cfg.Source.Publication = "page_"+table, "page_"+table
	cfg.Sink.Kafka.Brokers = broker.Brokers
	cfg.Sink.Kafka.CreateTopics = true
	cfg.Checkpoint.Store = store.StorePostgres
	cfg.Checkpoint.Interval = 50 * time.Millisecond
	cfg.Errors.OnBadEvent = "dead_letter"
	cfg.Errors.DrainTimeout = time.Second
	cfg.HTTP.Listen = "127.0.0.1:0"
	return cfg
}

// status asks /status of the connector, or of its pipeline with the name.
func (c connector) status(t *testing.T, name string) map[string]any {
	t.Helper()
	var all map[string]any
	must.OK(t, json.Unmarshal(c.get(t, "/status"), &all))
	if name == "" {
		return all
	}
	one, _ := all["pipelines"].(map[string]any)[name].(map[string]any)
	return one
}

func (c connector) get(t *testing.T, path string) []byte {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(c.base + path)
	must.OK(t, err)
	defer answer.Body.Close()
	return must.Get(io.ReadAll(answer.Body))(t)
}

func (c connector) awaitReady(t *testing.T) {
	t.Helper()
	await.Until(t, "readiness", func() bool {
		var ready struct{ Ready bool }
		must.OK(t, json.Unmarshal(c.get(t, "/readyz"), &ready))
		return ready.Ready
	})
}

var kinds = []string{"OrderPlaced", "OrderPaid", "OrderShipped"}

// write commits n events of the type, of some orders, each in a transaction.
func write(t *testing.T, db, table, aggregate string, n int) {
	t.Helper()
	statements := make([]string, n)
	for i := range statements {
		statements[i] = fmt.Sprintf(`INSERT INTO %s (aggregatetype, aggregateid, type, payload)
			VALUES ('%s', '%d', '%s', '{"total": %d}')`, table, aggregate, 1042+i%7, kinds[i%3], 1000+i)
	}
	pgtest.Exec(t, db, statements...)
}

// writer writes a few events each tenth of a second until stopped.
func writer(t *testing.T, db string, statement string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		conn, err := pgx.Connect(ctx, db)
		if err != nil {
			return
		}
		defer conn.Close(context.WithoutCancel(ctx))
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			_, _ = conn.Exec(ctx, statement, i) // a stopped server is part of some tests
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// lose drops the slot of a pipeline, as an operator may by mistake.
func lose(t *testing.T, db string, c connector, name string) {
	t.Helper()
	await.Until(t, "the slot to be lost", func() bool {
		pgtest.Exec(t, db, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'page_`+name+`' AND active`,
			`DO $$ BEGIN PERFORM pg_drop_replication_slot('page_`+name+`'); EXCEPTION WHEN OTHERS THEN NULL; END $$`)
		return c.status(t, name)["role"] == "failed"
	})
}
