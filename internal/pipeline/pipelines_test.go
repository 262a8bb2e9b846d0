package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// TestPipelinesAreIsolated drops the slot of the first of three pipelines and lets the
// second wait for a missing topic: the third goes on, and readiness, metrics and status
// tell them apart.
func TestPipelinesAreIsolated(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	broker := kafkatest.Start(t)
	var cfg config.Config
	for _, name := range []string{"orders", "billing", "audit"} {
		pgtest.Exec(t, db, fmt.Sprintf(`CREATE TABLE %s (id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
			aggregatetype text DEFAULT '%[1]s', aggregateid text DEFAULT '1', type text DEFAULT 'Done', payload jsonb DEFAULT '{}')`, name))
		cfg.Pipelines = append(cfg.Pipelines, config.Pipeline{Name: name, Config: pipelineConfig(db, broker.Brokers[0], name)})
	}
	cfg.Pipelines[2].Config.Sink.Kafka.CreateTopics = false
	cfg.Pipelines[2].Config.Errors.DrainTimeout = 100 * time.Millisecond
	cfg.HTTP.Listen = "127.0.0.1:0"
	c := start(t, cfg)
	await.Until(t, "readiness", c.ready)

	pgtest.Exec(t, db, `INSERT INTO orders DEFAULT VALUES`, `INSERT INTO billing DEFAULT VALUES`, `INSERT INTO audit DEFAULT VALUES`)
	await.Until(t, "the first events", func() bool {
		text := body(c.base + "/metrics")
		return strings.Contains(text, published("orders", 1)) && strings.Contains(text, published("billing", 1))
	})
	await.Until(t, "the slot to be dropped", func() bool {
		dropSlot(t, db, "isolated_billing")
		return strings.Contains(body(c.base+"/metrics"), `cdc_outbox_role{pipeline="billing",role="failed"} 1`)
	})
	pgtest.Exec(t, db, `INSERT INTO orders DEFAULT VALUES`)
	await.Until(t, "the third pipeline's next event", func() bool { return strings.Contains(body(c.base+"/metrics"), published("orders", 2)) })

	for _, want := range []string{"pipeline billing: role is failed", "pipeline audit: topic does not exist: isolated.audit"} {
		await.Until(t, "readiness to say "+want, func() bool { return strings.Contains(body(c.base+"/readyz"), want) })
	}
	if ready := body(c.base + "/readyz"); strings.Contains(ready, "orders") || code(c.base+"/readyz") != http.StatusServiceUnavailable {
		t.Errorf("/readyz = %s", ready)
	}
	if text := body(c.base + "/metrics"); strings.Contains(text, `cdc_outbox_connected{pipeline="billing"`) ||
		!strings.Contains(text, `cdc_outbox_connected{pipeline="orders",side="kafka"} 1`) {
		t.Errorf("the metrics say of what nobody looks at any more that it is connected, or not: %s", text)
	}
	if got := code(c.base + "/livez"); got != http.StatusOK {
		t.Errorf("/livez answers %d: a restart does not bring a slot back", got)
	}
	const typed = "cdc-outbox setup -c outbox.yaml --pipeline billing --accept-gap"
	if status := body(c.base + "/status"); !strings.Contains(status, `"role": "failed"`) || !strings.Contains(status, typed) {
		t.Errorf("/status = %s", status)
	}
	if line := c.logs.FilterMessage(needsOperator).All()[0].ContextMap(); !strings.Contains(fmt.Sprint(line["remedy"]), typed) {
		t.Errorf("logged %v", line)
	}
	err := c.stop()
	if remedy := failure.RemedyOf(err); !strings.Contains(remedy, typed) {
		t.Errorf("the remedy of Run's error is %s", remedy)
	}
	if failure.ClassOf(err) != failure.Loss || !strings.Contains(err.Error(), "pipeline billing: ") {
		t.Errorf("Run = %v, want the loss of pipeline billing", err)
	}
}

// dropSlot ends the session reading the slot, and drops the slot if nobody is
// back by then.
func dropSlot(t *testing.T, url, name string) {
	t.Helper()
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	defer func() { _ = conn.Close(t.Context()) }()
	for _, sql := range []string{
		`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`,
		`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND NOT active`,
	} {
		_, err := conn.Exec(t.Context(), sql, name)
		if pg, ok := errors.AsType[*pgconn.PgError](err); err != nil && (!ok || pg.Code != codeObjectInUse) {
			t.Fatal(err)
		}
	}
}

// codeObjectInUse is the SQLSTATE of a statement on an active slot.
const codeObjectInUse = "55006"

func ordersPipeline(log *zap.Logger) *pipeline {
	return &pipeline{name: "orders", log: log, metrics: metrics.New("", "").Pipeline("orders"), health: &health{}}
}

func TestPipelineIsStartedAgainAfterWhatMayPass(t *testing.T) {
	p := ordersPipeline(zap.NewNop())
	runs := 0
	err := p.supervise(t.Context(), func(context.Context) error {
		runs++
		if runs == 1 {
			return errors.New("taken over")
		}
		if _, reasons := p.health.Ready(); !slices.Contains(reasons, "taken over") {
			t.Errorf("readiness says %q, want why it is started again", reasons)
		}
		return nil
	})
	if runs != 2 || err != nil {
		t.Errorf("ran %d times, supervise = %v", runs, err)
	}
}

func pipelineConfig(url, broker, name string) *config.Config {
	cfg := config.Default()
	cfg.Source.URL = setting.Secret(url)
	cfg.Source.Tables = []pg.Table{{Schema: "public", Name: name}}
	cfg.Source.Slot = "isolated_" + name
	cfg.Source.Publication = "isolated_" + name
	cfg.Route.Topic = "isolated.${routedByValue}"
	cfg.Sink.Kafka.Brokers = []string{broker}
	cfg.Sink.Kafka.CreateTopics = true
	cfg.Checkpoint.Interval = 10 * time.Millisecond
	return &cfg
}

func published(name string, n int) string {
	return fmt.Sprintf("cdc_outbox_events_published_total{pipeline=%q,topic=\"isolated.%s\"} %d\n", name, name, n)
}

// An error during a stop is reported as such: without a word that others go on, or a
// remedy.
func TestPipelineThatFailsToStop(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	p := ordersPipeline(zap.New(core))
	ctx, cancel := context.WithCancel(t.Context())
	err := p.supervise(ctx, func(context.Context) error {
		cancel()
		return failure.Lossf("look", "records are gone")
	})
	if failure.ClassOf(err) != failure.Loss || err.Error() != "pipeline orders: records are gone" || logs.Len() > 0 {
		t.Errorf("supervise = %v, logged %v", err, logs.All())
	}
}

// A pipeline with an impossible configuration says so, and is stopped like the others; its
// error is the result.
func TestPipelineThatCannotWorkWaitsForAPerson(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	p := ordersPipeline(zap.New(core))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	impossible := failure.Configf("grant it", "no privilege")
	go func() {
		done <- p.supervise(ctx, func(context.Context) error { return impossible })
	}()
	await.Until(t, "the reason", func() bool {
		_, reasons := p.health.Ready()
		return slices.Contains(reasons, "no privilege")
	})
	select {
	case err := <-done:
		t.Fatalf("supervise = %v, want it to look again later", err)
	default:
	}
	cancel()
	err := <-done
	if failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) != "grant it" || !errors.Is(err, impossible) {
		t.Errorf("supervise = %v, want class Config and the remedy", err)
	}
	if said := logs.FilterMessage(needsOperator).FilterField(zap.Error(impossible)).Len(); said != 1 || logs.Len() != 1 || strings.Contains(err.Error(), "no privilege") {
		t.Errorf("logged %v, returned %v; want the reason in the log alone", logs.All(), err)
	}
}
