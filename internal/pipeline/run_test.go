package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/stream"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

var _ stream.Metrics = (*metrics.Metrics)(nil)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience bounds every wait, for slow and busy machines.
const patience = time.Minute

// running is a connector in the background.
type running struct {
	base   string // of its URLs
	stdout *lockedBuffer
	logs   *observer.ObservedLogs
	stop   func() error // waits for Run's result
}

func start(t *testing.T, cfg config.Config) running {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	out := &lockedBuffer{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Config: &cfg, Log: zap.New(core), Stdout: out,
			Invocation: invocation.Invocation{File: "outbox.yaml"}})
	}()
	stop := sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return fmt.Errorf("Run does not return")
		}
	})
	t.Cleanup(func() {
		err := stop()
		if t.Failed() {
			t.Log("Run:", err)
			for _, entry := range logs.All() {
				t.Log(entry.Level, entry.Message, entry.ContextMap())
			}
		}
	})
	var address string
	await.Until(t, "the HTTP address", func() bool {
		for _, entry := range logs.FilterMessage("serving HTTP").All() {
			address = entry.ContextMap()["address"].(string)
		}
		return address != ""
	})
	return running{"http://" + address, out, logs, stop}
}

func TestRunPublishesAnswersAndDrains(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, db, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)`)
	cfg := stdoutConfig(db)
	c := start(t, cfg)
	await.Until(t, "readiness", c.ready)
	pgtest.Exec(t, db, `INSERT INTO outbox VALUES ('6f1e4c0a-0000-4000-8000-000000000001', 'order', 'o-1', 'Placed', '{"n": 1}')`)
	await.Until(t, "the event", func() bool { return strings.Contains(c.stdout.String(), "\n") })
	must.OK(t, c.stop())
	var event struct{ Topic, Key, Value string }
	must.OK(t, json.Unmarshal([]byte(c.stdout.String()), &event))
	if event.Topic != "outbox.event.order" || event.Key != "o-1" || event.Value != `{"n": 1}` {
		t.Errorf("published %+v", event)
	}
}

func TestRunAnswersWhileItWaitsForABroker(t *testing.T) {
	cfg := stdoutConfig("postgres://nobody@127.0.0.1:1/app")
	cfg.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	cfg.Sink.Kafka.Brokers = []string{"127.0.0.1:1"}
	cfg.Checkpoint.Store = store.StoreKafka
	c := start(t, cfg)
	await.Until(t, "an answer", func() bool { return code(c.base+"/livez") == http.StatusOK })
	if got := code(c.base + "/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz answers %d", got)
	}
	if got := code(c.base + "/status"); got != http.StatusOK {
		t.Errorf("/status answers %d", got)
	}
	must.OK(t, c.stop())
}

func TestRunEndsWithTheRelaysError(t *testing.T) {
	cfg := stdoutConfig("postgres://nobody@127.0.0.1:1/app")
	cfg.Route.Regex = "("
	for _, listen := range []string{"", "127.0.0.1:0"} {
		cfg.HTTP.Listen = listen
		err := Run(t.Context(), Options{Config: &cfg, Log: zap.NewNop(), Stdout: io.Discard})
		if failure.ClassOf(err) != failure.Config {
			t.Errorf("with http.listen %q Run = %v, want class Config", listen, err)
		}
	}
}

func TestRunRefusesAnAddressInUse(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = taken.Close() }()
	cfg := stdoutConfig("postgres://nobody@127.0.0.1:1/app")
	cfg.HTTP.Listen = taken.Addr().String()
	err := Run(t.Context(), Options{Config: &cfg, Log: zap.NewNop(), Stdout: io.Discard})
	if failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), "http.listen") {
		t.Errorf("Run = %v, want class Config naming http.listen", err)
	}
}

func stdoutConfig(url string) config.Config {
	cfg := config.Default()
	cfg.Source.URL = setting.Secret(url)
	cfg.Source.Slot = "connector_test"
	cfg.Sink = config.Sink{Stdout: &config.Stdout{}}
	cfg.Checkpoint.Store = store.StoreNone
	cfg.HTTP.Listen = "127.0.0.1:0"
	return cfg
}

// kafkaConfig is stdoutConfig with brokers, a slot and a checkpoint file.
func kafkaConfig(t *testing.T, url, slot string, brokers ...string) config.Config {
	t.Helper()
	cfg := stdoutConfig(url)
	cfg.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	cfg.Sink.Kafka.Brokers = brokers
	cfg.Source.Slot = slot
	cfg.Checkpoint.Store, cfg.Checkpoint.Path = store.StoreFile, filepath.Join(t.TempDir(), "checkpoint")
	return cfg
}

// active returns once the instance is.
func (r running) active(t *testing.T) running {
	t.Helper()
	await.Until(t, "the instance to be active", func() bool { return r.role() == session.Active })
	return r
}

// ready tells whether readiness is well.
func (r running) ready() bool { return code(r.base+"/readyz") == http.StatusOK }

// standsBy returns once the instance does.
func (r running) standsBy(t *testing.T) {
	t.Helper()
	await.Until(t, "the instance to stand by", func() bool { return r.role() == session.Standby })
}

// get asks for url and returns the status and the text; 0 without an answer.
func get(url string) (code int, text string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	answer, err := client.Get(url)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = answer.Body.Close() }()
	all, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all)
}

func code(url string) int { n, _ := get(url); return n }

func body(url string) string { _, text := get(url); return text }

// lockedBuffer is a buffer for a writer and a reader.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

var _ poll.Metrics = (*metrics.Metrics)(nil)

func TestRunPolls(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, db, polledOutbox)
	cfg := stdoutConfig(db)
	cfg.Source.Mode = config.ModePoll
	cfg.Event.PositionHeaders = false
	c := start(t, cfg)
	await.Until(t, "readiness", c.ready)
	pgtest.Exec(t, db, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'o-1', 'Placed', '{"n": 1}')`)
	await.Until(t, "the event", func() bool { return strings.Contains(c.stdout.String(), `"key":"o-1"`) })
	if got := code(c.base + "/status"); got != http.StatusOK {
		t.Errorf("/status answers %d", got)
	}
	must.OK(t, c.stop())
}

const polledOutbox = `CREATE TABLE outbox (id bigserial PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb,
	created_at timestamptz DEFAULT now(), published boolean NOT NULL DEFAULT false)`

// role is the role in /status.
func (r running) role() string {
	var status struct{ Role string }
	_ = json.Unmarshal([]byte(body(r.base+"/status")), &status)
	return status.Role
}

// An instance is cut off, another goes on and publishes. The first comes back as a spare,
// in the same process, and takes over when the other stops.
func TestE2EInstanceThatWasOvertakenStandsBy(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, db, `CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)`)
	insert := func(id int) {
		pgtest.Exec(t, db, fmt.Sprintf(`INSERT INTO outbox VALUES ('e%d', 'order', 'o-1', 'Placed', '{"n": %d}')`, id, id))
	}
	published := func(r running, id int) func() bool {
		return func() bool { return strings.Contains(r.stdout.String(), fmt.Sprintf(`\"n\": %d`, id)) }
	}
	line, behindURL := pgtest.Behind(t, db)
	cfg := stdoutConfig(db)
	cfg.Source.Slot = "connector_takeover"
	cfg.Checkpoint.Store, cfg.Checkpoint.Path = store.StoreFile, filepath.Join(t.TempDir(), "checkpoint")
	behind := cfg
	behind.Source.URL = setting.Secret(behindURL)

	first := start(t, behind).active(t)
	insert(1)
	await.Until(t, "the first event", published(first, 1))
	line.Refuse(true)
	line.Cut()
	second := start(t, cfg).active(t)
	insert(2)
	await.Until(t, "the second event", published(second, 2))
	line.Refuse(false)
	await.Until(t, "the first to stand by", func() bool { return first.role() == "standby" && code(first.base+"/readyz") == http.StatusOK })
	must.OK(t, second.stop())
	insert(3)
	await.Until(t, "the third event", published(first, 3))
	must.OK(t, first.stop())
	if strings.Contains(first.stdout.String(), `\"n\": 2`) {
		t.Error("the first published again what the second had published")
	}
}
