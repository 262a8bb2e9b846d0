package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/internal/child"
	"github.com/cdc-outbox/cdc-outbox/internal/pgserver"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

const (
	topic    = "outbox.event.order"
	patience = time.Minute
)

// world is the servers, and what was committed and has arrived.
type world struct {
	postgres *pgserver.Server
	kafka    *kfake.Cluster
	client   *kgo.Client
	sql      *pgx.Conn
	version  string

	reading     context.Context // of the consumer; ends with stopReading
	stopReading context.CancelFunc
	reader      sync.WaitGroup

	mu        sync.Mutex
	committed map[uuid.UUID]time.Time // when, unless it has arrived
	arrived   map[uuid.UUID]bool
	repeated  int
	latency   []time.Duration // of the present phase
}

// settings make autovacuum look at the table as often as it would in the played
// hour.
var settings = map[string]string{"autovacuum_naptime": "5s"}

func newWorld(ctx context.Context, o options) (_ *world, err error) {
	w := &world{committed: map[uuid.UUID]time.Time{}, arrived: map[uuid.UUID]bool{}}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	bin, err := pgserver.Ensure(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	if w.postgres, err = pgserver.Start(ctx, pgserver.Options{BinDir: bin, Durable: true, Settings: settings}); err != nil {
		return nil, err
	}
	if w.sql, err = pgx.Connect(ctx, w.postgres.URL("postgres")); err != nil {
		return nil, err
	}
	// As docs/operations.md says for a table with retention.
	_, err = w.sql.Exec(ctx, outbox.Schema+`;
		ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)`)
	if err != nil {
		return nil, err
	}
	if err := w.sql.QueryRow(ctx, `SELECT 'PostgreSQL ' || current_setting('server_version')`).Scan(&w.version); err != nil {
		return nil, err
	}
	if w.kafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(6, topic)); err != nil {
		return nil, err
	}
	if w.client, err = kgo.NewClient(kgo.SeedBrokers(w.kafka.ListenAddrs()...), kgo.ConsumeTopics(topic)); err != nil {
		return nil, err
	}
	w.reading, w.stopReading = context.WithCancel(context.WithoutCancel(ctx))
	w.reader.Go(w.consume) // joined by close
	setup := exec.CommandContext(ctx, o.binary, "setup")
	setup.Env = w.environ(0)
	if out, err := setup.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cdc-outbox setup: %w: %s", err, out)
	}
	return w, nil
}

func (w *world) close() {
	if w.stopReading != nil {
		w.stopReading()
		w.reader.Wait()
	}
	if w.client != nil {
		w.client.Close()
	}
	if w.kafka != nil {
		w.kafka.Close()
	}
	if w.sql != nil {
		_ = w.sql.Close(context.Background()) // nothing is pending on it
	}
	if w.postgres != nil {
		_ = w.postgres.Close()
	}
}

func (w *world) environ(after time.Duration) []string {
	return append(os.Environ(),
		"CDC_OUTBOX_SOURCE_URL="+w.postgres.URL("postgres"),
		"CDC_OUTBOX_SINK_KAFKA_BROKERS="+w.kafka.ListenAddrs()[0],
		"CDC_OUTBOX_HTTP_LISTEN=",
		"CDC_OUTBOX_LOG_LEVEL=error",
		"CDC_OUTBOX_RETENTION_AFTER="+after.String(),
		"CDC_OUTBOX_RETENTION_INTERVAL=1s",
	)
}

// consume notes what arrives, until reading ends.
func (w *world) consume() {
	for w.reading.Err() == nil {
		w.client.PollFetches(w.reading).EachRecord(w.arrive)
	}
}

func (w *world) arrive(r *kgo.Record) {
	now := time.Now()
	text, err := consumer.Header(consumer.DefaultIDHeader)(r)
	if err != nil {
		return // not ours
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.arrived[id] {
		w.repeated++
		return
	}
	w.arrived[id] = true
	if at, ok := w.committed[id]; ok {
		delete(w.committed, id)
		w.latency = append(w.latency, now.Sub(at))
	}
}

// commit notes an event whose commit returned now. One that has arrived already
// took no time.
func (w *world) commit(id uuid.UUID) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.arrived[id] {
		w.latency = append(w.latency, 0)
		return
	}
	w.committed[id] = now
}

// waiting is how many committed events have not arrived.
func (w *world) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.committed)
}

// verdict waits for the last events, and tells what is missing.
func (w *world) verdict(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Printf("%d events committed, %d arrived, %d of them more than once\n", len(w.arrived)+len(w.committed), len(w.arrived), w.repeated)
	if n := len(w.committed); n > 0 {
		return fmt.Errorf("%d committed events have not arrived", n)
	}
	return ctx.Err()
}

// connector runs the connector while fn does.
func (w *world) connector(ctx context.Context, o options, after time.Duration, fn func() error) error {
	cmd := exec.Command(o.binary, "run")
	cmd.Env = w.environ(after)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	process, err := child.Start(cmd)
	if err != nil {
		return err
	}
	err = fn()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return errors.Join(err, process.Stop(stopping, syscall.SIGTERM))
}
