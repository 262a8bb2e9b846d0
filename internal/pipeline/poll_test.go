package pipeline

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/internal/proxy"
	"github.com/cdc-outbox/cdc-outbox/sink"
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

// TestPollingTellsOfOutages stops PostgreSQL in the middle of a backlog, on which
// all workers are at work: readiness names the cause, and comes back by itself
// although there is never a backlog again.
func TestPollingTellsOfOutages(t *testing.T) {
	server := pgtest.Start(t)
	db := server.NewDatabase(t)
	pgtest.Exec(t, db, polledOutbox)
	broker := kafkatest.Start(t)
	broker.CreateTopic(t, "outbox.event.order", 1, nil)
	cfg := stdoutConfig(db)
	cfg.Source.Mode = config.ModePoll
	cfg.Source.Poll.Notify = ""
	cfg.Source.Poll.MaxInterval = cfg.Source.Poll.Interval
	cfg.Source.Poll.BatchSize = 10
	cfg.Source.Poll.ClaimTimeout = time.Second
	cfg.Event.PositionHeaders = false
	cfg.Errors.DrainTimeout = time.Second
	cfg.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	cfg.Sink.Kafka.Brokers = broker.Brokers
	c := start(t, cfg)
	ready := func() bool { return code(c.base+"/readyz") == http.StatusOK }
	wait(t, "readiness", ready)

	broker.Stop(t)
	pgtest.Exec(t, db, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'order', n::text, 'Placed', '1' FROM generate_series(1, 100) n`)
	wait(t, "the second worker", func() bool {
		return count(t, db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cdc-outbox'") == 2
	})
	wait(t, "the broker as the cause", func() bool { return strings.Contains(body(c.base+"/readyz"), "no acknowledgement for a delivery") })

	server.Stop(t, pgtest.Immediate)
	for _, path := range []string{"/readyz", "/status"} {
		wait(t, "the cause in "+path, func() bool { return strings.Contains(body(c.base+path), "connection refused") })
	}
	for _, want := range []string{`cdc_outbox_role{role="active"} 0`, `cdc_outbox_role{role="starting"} 1`, `cdc_outbox_reconnects_total{side="postgres"}`} {
		wait(t, "the metrics to say "+want, func() bool { return strings.Contains(body(c.base+"/metrics"), want) })
	}

	broker.Resume(t)
	server.Resume(t)
	wait(t, "readiness", ready)
	drained := func(n int) {
		t.Helper()
		wait(t, "the rows to be marked", func() bool { return count(t, db, "SELECT count(*) FROM outbox WHERE NOT published") == 0 })
		// A batch whose claim went with the server is published again.
		if got := counter(t, c, `cdc_outbox_events_published_total{topic="outbox.event.order"}`); got < n {
			t.Errorf("%d events are published, want %d", got, n)
		}
	}
	drained(100)

	// The second worker waits for the next backlog, and finds its connection gone
	// when there is one. The first has drained it by then.
	wait(t, "the second worker to rest", func() bool {
		return count(t, db, `SELECT count(*) FROM (SELECT max(state_change) - min(state_change) AS apart, count(*) AS n
			FROM pg_stat_activity WHERE application_name = 'cdc-outbox') s WHERE n = 2 AND apart > interval '2 seconds'`) == 1
	})
	before := reconnects(t, c)
	pgtest.Exec(t, db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cdc-outbox'`)
	wait(t, "the first worker to notice", func() bool { return reconnects(t, c) > before })
	wait(t, "its new connection", ready)
	before = reconnects(t, c)
	pgtest.Exec(t, db, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'order', n::text, 'Placed', '1' FROM generate_series(1, 10) n`)
	drained(110)
	wait(t, "the second worker to notice", func() bool { return reconnects(t, c) > before })
	if !ready() {
		t.Errorf("/readyz = %s", body(c.base+"/readyz"))
	}
}

// count returns the single value of a query.
func count(t *testing.T, url, sql string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// reconnects is how often a connection to PostgreSQL was lost.
func reconnects(t *testing.T, c running) int {
	t.Helper()
	return counter(t, c, `cdc_outbox_reconnects_total{side="postgres"}`)
}

// counter is the value of a metric.
func counter(t *testing.T, c running, name string) int {
	t.Helper()
	_, after, _ := strings.Cut(body(c.base+"/metrics"), "\n"+name+" ")
	line, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The server is there and says nothing: as when its machine stands still, or
// the network loses everything.
func TestPollingTellsOfASilentServer(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, db, polledOutbox)
	at, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	line, err := proxy.Listen("127.0.0.1:0", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = line.Close() })
	at.Host = line.Addr()
	cfg := stdoutConfig(at.String())
	cfg.Source.Mode = config.ModePoll
	cfg.Event.PositionHeaders = false
	c := start(t, cfg)
	wait(t, "readiness", func() bool { return code(c.base+"/readyz") == http.StatusOK })
	for _, d := range []proxy.Direction{proxy.Up, proxy.Down} {
		line.Set(d, proxy.Fault{Swallow: true})
	}
	wait(t, "readiness to end", func() bool { return code(c.base+"/readyz") != http.StatusOK })
	if got := body(c.base + "/readyz"); !strings.Contains(got, "PostgreSQL has not answered for") {
		t.Errorf("/readyz = %s", got)
	}
	for _, d := range []proxy.Direction{proxy.Up, proxy.Down} {
		line.Set(d, proxy.Fault{})
	}
	line.Cut()
	wait(t, "readiness again", func() bool { return code(c.base+"/readyz") == http.StatusOK })
}
