package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

const (
	group   = "shipping"
	timeout = 90 * time.Second
)

// ledger is a Runner with a store shared by consumers: leases do not expire while
// their handlers run.
type ledger struct {
	mu          sync.Mutex
	state       map[string]string // "", running, done
	down        bool
	unavailable int
	elsewhere   int
}

func newLedger() *ledger { return &ledger{state: map[string]string{}} }

func (l *ledger) Run(ctx context.Context, m idempotency.Message, h idempotency.Handler) (idempotency.Result, error) {
	if result, claimed := l.claim(m.Key.ID); !claimed {
		return result, nil
	}
	_, err := h(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.state[m.Key.ID] = ""
		return idempotency.Result{Disposition: idempotency.Retry, Attempt: 1, Wait: time.Millisecond}, err
	}
	l.state[m.Key.ID] = "done"
	return idempotency.Result{Disposition: idempotency.Handled, Attempt: 1}, nil
}

func (l *ledger) claim(id string) (idempotency.Result, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.down:
		l.unavailable++
		return idempotency.Result{Disposition: idempotency.Unavailable}, false
	case l.state[id] == "done":
		return idempotency.Result{Disposition: idempotency.Skipped}, false
	case l.state[id] != "":
		l.elsewhere++
		return idempotency.Result{Disposition: idempotency.Elsewhere, Wait: 5 * time.Millisecond}, false
	}
	l.state[id] = "running"
	return idempotency.Result{}, true
}

func (l *ledger) set(id, state string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state[id] = state
}

func (l *ledger) setDown(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
}

func (l *ledger) count(what *int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *what
}

// runnerFunc is a function as a Runner.
type runnerFunc func(context.Context, idempotency.Message, idempotency.Handler) (idempotency.Result, error)

func (f runnerFunc) Run(ctx context.Context, m idempotency.Message, h idempotency.Handler) (idempotency.Result, error) {
	return f(ctx, m, h)
}

// burying is a Runner with dead letters.
type burying struct {
	idempotency.Runner
	bury func(context.Context, idempotency.DeadLetter) error
}

func (b burying) Refuse(ctx context.Context, m idempotency.Message, reason error) (idempotency.Result, error) {
	if err := b.bury(ctx, idempotency.DeadLetter{Message: m, Reason: reason}); err != nil {
		return idempotency.Result{Disposition: idempotency.Retry}, errors.Join(reason, err)
	}
	return idempotency.Result{Disposition: idempotency.DeadLettered, Reason: reason.Error()}, nil
}

// config returns a configuration with short times.
func config(b *kafkatest.Broker, runner idempotency.Runner, h consumer.Handler) consumer.Config {
	return consumer.Config{
		Brokers: b.Brokers, Group: group, Topics: []string{"orders"},
		Options: []kgo.Opt{
			kgo.FetchMaxWait(50 * time.Millisecond),
			kgo.HeartbeatInterval(100 * time.Millisecond),
			kgo.MetadataMinAge(50 * time.Millisecond),
		},
		Once:           consumer.Once{Scope: group, Runner: runner},
		Handler:        h,
		CommitInterval: 10 * time.Millisecond,
		RevokeTimeout:  30 * time.Second,
		DrainTimeout:   30 * time.Second,
		BackoffFirst:   5 * time.Millisecond,
		BackoffLongest: 20 * time.Millisecond,
		Logger:         slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// member is a running consumer.
type member struct {
	cancel context.CancelFunc
	done   chan error
}

// start runs a consumer until stop, or the end of the test.
func start(t testing.TB, cfg consumer.Config) *member {
	t.Helper()
	return startWith(context.Background(), t, cfg)
}

// startWith is start with the values of a context.
func startWith(ctx context.Context, t testing.TB, cfg consumer.Config) *member {
	t.Helper()
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	m := &member{cancel: cancel, done: make(chan error, 1)}
	go func() { m.done <- c.Run(ctx) }()
	t.Cleanup(func() { m.stop(t) })
	return m
}

// stop ends the consumer; an error fails the test.
func (m *member) stop(t testing.TB) {
	t.Helper()
	m.cancel()
	if err := m.end(t); err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// end waits for the end of Run, and returns the error the first time.
func (m *member) end(t testing.TB) error {
	t.Helper()
	select {
	case err, open := <-m.done:
		if open {
			close(m.done)
		}
		return err
	case <-time.After(timeout):
		t.Error("Run does not return")
		return nil
	}
}

// receive returns the channel's next value, or fails the test after a while.
func receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(timeout):
		t.Fatalf("in vain waited for %s", what)
		panic("unreachable")
	}
}

// record returns a record with an id.
func record(partition int32, key, id string) *kgo.Record {
	return &kgo.Record{
		Topic: "orders", Partition: partition, Key: []byte(key), Value: []byte(id),
		Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}},
	}
}

// produce writes records to their partitions, and fills in their offsets.
func produce(t testing.TB, b *kafkatest.Broker, records ...*kgo.Record) {
	t.Helper()
	client := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// load produces n records to each of the partitions, of so many keys each.
func load(t testing.TB, b *kafkatest.Broker, partitions, n, keys int) []*kgo.Record {
	t.Helper()
	var records []*kgo.Record
	for i := range n {
		for p := range partitions {
			records = append(records, record(int32(p), fmt.Sprintf("%d-%d", p, i%keys), fmt.Sprintf("%d/%d", p, i)))
		}
	}
	produce(t, b, records...)
	return records
}

// committed returns the group's offset of a partition, 0 if there is none.
func committed(t testing.TB, admin *kadm.Client, partition int32) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	offsets, err := admin.FetchOffsets(ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) || kerr.IsRetriable(err) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	o, ok := offsets.Lookup("orders", partition)
	if !ok || o.Err != nil {
		return 0
	}
	return max(0, o.At)
}

// eventuallyCommitted waits until the group's offset of each partition is n.
func eventuallyCommitted(t testing.TB, admin *kadm.Client, partitions int32, n int64) {
	t.Helper()
	await.Until(t, fmt.Sprintf("commits of %d", n), func() bool {
		for p := range partitions {
			if committed(t, admin, p) != n {
				return false
			}
		}
		return true
	})
}

var errDown = errors.New("the warehouse does not answer")

// cutOff says whether a handler was cut off, for the reason given.
func cutOff(cause error, why string) bool {
	return errors.Is(cause, consumer.ErrCutOff) && strings.Contains(cause.Error(), why)
}
