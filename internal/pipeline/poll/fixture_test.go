package poll_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

const patience = 2 * time.Minute

// The widespread schema, with either kind of id.
const (
	serialOutbox = `CREATE TABLE outbox (id bigserial PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text, event_type text,
		payload jsonb, created_at timestamptz NOT NULL DEFAULT now(), published boolean NOT NULL DEFAULT false, published_at timestamptz)`
	uuidOutbox = `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL, aggregate_id text, event_type text,
		payload jsonb, created_at timestamptz NOT NULL DEFAULT clock_timestamp(), published boolean NOT NULL DEFAULT false, published_at timestamptz)`
	serialIndex = `CREATE INDEX outbox_unpublished_idx ON outbox (id) WHERE NOT published`
)

// world is a database with an outbox, and everything published.
type world struct {
	t     *testing.T
	parts poll.Parts
	topic *topic
	conn  *pgx.Conn
	hasty bool // readiness is impatient
}

func newWorld(t *testing.T, server *pgtest.Server, ddl ...string) *world {
	t.Helper()
	if server == nil {
		server = pgtest.Shared(t)
	}
	return newWorldIn(t, server.NewDatabase(t), ddl...)
}

func newWorldIn(t *testing.T, url string, ddl ...string) *world {
	t.Helper()
	pgtest.Exec(t, url, ddl...)
	parts := poll.Parts{
		Options: poll.DefaultOptions(), URL: url, Tables: []pg.Table{{Schema: "public", Name: "outbox"}},
		Event: transform.DefaultEvent(), Route: transform.DefaultRoute(), OnBadEvent: transform.BadEventStop,
		DrainTimeout: 20 * time.Second, MaxBufferedBytes: 8 << 20,
	}
	parts.Interval, parts.MaxInterval = 5*time.Millisecond, 50*time.Millisecond
	parts.Event.PositionHeaders = false
	w := &world{t: t, parts: parts, topic: &topic{}}
	w.conn = w.connect()
	return w
}

func (w *world) connect() *pgx.Conn {
	w.t.Helper()
	conn := must.Get(pgx.Connect(w.ctx(), w.parts.URL))(w.t)
	w.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) exec(conn *pgx.Conn, sql ...string) {
	w.t.Helper()
	for _, s := range sql {
		if _, err := conn.Exec(w.ctx(), s); err != nil {
			w.t.Fatalf("%s: %v", s, err)
		}
	}
}

// insert adds an event with a number as payload.
func (w *world) insert(conn *pgx.Conn, key string, n int) {
	w.t.Helper()
	must.Get(conn.Exec(w.ctx(), `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', $1, 'Placed', $2)`, key, fmt.Sprint(n)))(w.t)
}

// series adds events with the payloads from first to below end, of so many keys in turn.
func (w *world) series(first, end, keys int) {
	w.t.Helper()
	for n := first; n < end; n++ {
		w.insert(w.conn, fmt.Sprint("k", n%keys), n)
	}
}

func (w *world) count(condition string) (n int) {
	w.t.Helper()
	must.OK(w.t, w.conn.QueryRow(w.ctx(), "SELECT count(*) FROM outbox WHERE "+condition).Scan(&n))
	return n
}

// instance is a running pipeline.
type instance struct {
	*recorder
	health *poll.Health
	ended  chan struct{} // closed when Run returned
	result error         // of Run
	cancel context.CancelFunc
}

// recorder is the metrics, and counts lost connections.
type recorder struct {
	*metrics.Metrics
	reconnects atomic.Int64
	unknown    atomic.Int64 // how often the backlog became unknown
}

func (r *recorder) BacklogUnknown() {
	r.unknown.Add(1)
	r.Metrics.BacklogUnknown()
}

func (r *recorder) Reconnected(side string) {
	r.reconnects.Add(1)
	r.Metrics.Reconnected(side)
}

func (in *instance) status() poll.Status { return in.health.Status().(poll.Status) }

func (in *instance) ready() bool { ok, _ := in.health.Ready(); return ok }

// says tells whether readiness has a reason with the text.
func (in *instance) says(text string) func() bool {
	return func() bool {
		_, reasons := in.health.Ready()
		return strings.Contains(strings.Join(reasons, "\n"), text)
	}
}

// stop ends the instance and returns Run's result; end waits until Run ends by itself.
func (in *instance) stop() error { in.cancel(); return in.end() }

func (in *instance) end() error {
	select {
	case <-in.ended:
		return in.result
	case <-time.After(patience):
		return errors.New("Run does not return")
	}
}

// start runs an instance; fault may spoil its sink.
func (w *world) start(fault *fault) *instance {
	w.t.Helper()
	if fault == nil {
		fault = newFault()
	}
	m := &recorder{Metrics: metrics.New("", "").Pipeline("")}
	parts := w.parts
	parts.Open = func() (sink.Sink, error) { return &producer{topic: w.topic, fault: fault}, nil }
	parts.Metrics, parts.Kafka = m, delivery.NewDownstream(m)
	parts.Log = zaptest.NewLogger(w.t, zaptest.Level(zap.WarnLevel))
	r := must.Get(poll.New(parts))(w.t)
	ctx, cancel := context.WithCancel(context.Background())
	if w.hasty {
		r.Hasten()
	}
	in := &instance{recorder: m, health: r.Health(), ended: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(in.ended)
		in.result = r.Run(ctx)
	}()
	w.t.Cleanup(func() { _ = in.stop() })
	return in
}

// await returns once the condition holds.
func (w *world) await(what string, met func() bool) {
	w.t.Helper()
	await.Until(w.t, what, met)
}

// published waits until n events are in the topic and none is left in the table.
func (w *world) published(n int) {
	w.t.Helper()
	w.await(fmt.Sprintf("%d events", n), func() bool { return len(w.topic.all()) >= n && w.count("NOT published") == 0 })
}

// message is a record as seen by a consumer.
type message struct {
	id, key, value string
	event          *transform.Event
}

// topic is a broker of a single partition.
type topic struct {
	mu   sync.Mutex
	log  []message
	dead []message
}

func (t *topic) all() []message {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.log)
}

func (t *topic) letters() []message {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.dead)
}

// values are a key's values, each at its first occurrence.
func (t *topic) values(key string) (values []string) {
	seen := map[string]bool{}
	for _, m := range t.all() {
		if m.key == key && !seen[m.id] {
			seen[m.id] = true
			values = append(values, m.value)
		}
	}
	return values
}

// fault spoils deliveries: while block is open, none ends.
type fault struct {
	mu     sync.Mutex
	block  chan struct{} // nil: deliveries pass
	began  chan struct{} // capacity 1: a delivery began
	deaf   bool          // a blocked delivery does not heed its context
	reject func(*transform.Event) *transform.BadEvent
}

func newFault() *fault { return &fault{began: make(chan struct{}, 1)} }

// awaitDelivery returns once another delivery began.
func (f *fault) awaitDelivery(t *testing.T) {
	t.Helper()
	select {
	case <-f.began:
	case <-time.After(patience):
		t.Fatal("nothing is delivered")
	}
}

func (f *fault) down() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.block = make(chan struct{})
}

func (f *fault) up() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.block)
	f.block = nil
}

// pass waits until deliveries pass.
func (f *fault) pass(ctx context.Context) error {
	select {
	case f.began <- struct{}{}:
	default:
	}
	f.mu.Lock()
	block := f.block
	f.mu.Unlock()
	if block == nil {
		return nil
	}
	done := ctx.Done()
	if f.deaf {
		done = nil
	}
	select {
	case <-block:
		return nil
	case <-done:
		return context.Cause(ctx)
	}
}

// producer is a sink not to be used after an error, as in package sink.
type producer struct {
	topic  *topic
	fault  *fault
	failed bool
}

func (p *producer) Deliver(ctx context.Context, events []*transform.Event, reject sink.Reject) error {
	if p.failed {
		return errors.New("used after an error")
	}
	if err := p.fault.pass(ctx); err != nil {
		p.failed = true
		return err
	}
	for _, ev := range events {
		if p.fault.reject != nil {
			if bad := p.fault.reject(ev); bad != nil {
				if err := reject(ctx, ev, bad); err != nil {
					p.failed = true
					return err
				}
				continue
			}
		}
		p.topic.mu.Lock()
		p.topic.log = append(p.topic.log, read(ev))
		p.topic.mu.Unlock()
	}
	return nil
}

func (p *producer) DeadLetter(_ context.Context, ev *transform.Event, _ *transform.BadEvent) error {
	p.topic.mu.Lock()
	defer p.topic.mu.Unlock()
	p.topic.dead = append(p.topic.dead, read(ev))
	return nil
}

func (p *producer) Close() {}

func read(ev *transform.Event) message {
	return message{string(ev.ID), string(ev.Record.Key), string(ev.Record.Value), ev}
}
