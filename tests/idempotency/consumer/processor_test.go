package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/deadletter"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// processor returns a Processor around a store in memory, closed at the end of
// the test.
func processor(t testing.TB, change func(*idempotency.Options)) *idempotency.Processor {
	t.Helper()
	o := idempotency.Options{
		Store: memory.New(memory.Options{}), FirstRetry: time.Millisecond, LastRetry: 2 * time.Millisecond, MaxAttempts: 3,
		DeadLetter: func(context.Context, idempotency.DeadLetter) error { return nil },
	}
	if change != nil {
		change(&o)
	}
	p := must.Get(idempotency.New(o))(t)
	t.Cleanup(p.Close)
	return p
}

// A panicking handler costs the record attempts, and nobody anything else. A
// panicking middleware does not take the process down either.
func TestPanics(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 2, nil)
	b.CreateTopic(t, "orders.dead", 1, nil)
	load(t, b, 2, 5, 1)
	bury, err := consumer.DeadLetterTopic(b.Client(t), "orders.dead")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	var handled, middle atomic.Int64
	cfg := config(b, processor(t, func(o *idempotency.Options) { o.DeadLetter = bury }), func(_ context.Context, r *kgo.Record) error {
		if string(r.Value) == "1/2" {
			panic("no such order")
		}
		handled.Add(1)
		return nil
	})
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	cfg.Concurrency = 1
	cfg.Middleware = []func(consumer.Process) consumer.Process{func(next consumer.Process) consumer.Process {
		return func(ctx context.Context, r *kgo.Record) (idempotency.Result, error) {
			if string(r.Value) == "0/0" && middle.Add(1) == 1 {
				panic("nothing is in order")
			}
			return next(ctx, r)
		}
	}}
	m := start(t, cfg)
	eventuallyCommitted(t, kadm.NewClient(b.Client(t)), 2, 5)
	m.stop(t)
	if handled.Load() != 9 {
		t.Errorf("%d handled", handled.Load())
	}
	for _, want := range []string{"panic: no such order", "stack=", "panic: nothing is in order"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log.String())
		}
	}
}

// TestWithProcessor has duplicates, passing failures and poison. All but the
// poison is handled once.
func TestWithProcessor(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	b.CreateTopic(t, "orders.dead", 1, nil)
	var records []*kgo.Record
	const n = 30
	for i := range n {
		id := fmt.Sprint(i)
		records = append(records, record(0, "k", id), record(0, "k", id))
	}
	contradiction := record(0, "k", "5")
	contradiction.Value = []byte("another payload")
	produce(t, b, append(records, contradiction)...)

	bury, err := consumer.DeadLetterTopic(b.Client(t), "orders.dead")
	if err != nil {
		t.Fatal(err)
	}
	m, err := metrics.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	p := processor(t, func(o *idempotency.Options) { o.DeadLetter, o.Observer = bury, m.Observer() })
	var handled, attempts atomic.Int64
	cfg := config(b, p, func(ctx context.Context, r *kgo.Record) error {
		if _, ok := idempotency.FenceFrom(ctx); !ok {
			t.Error("the handler has no fence")
		}
		attempts.Add(1)
		switch {
		case string(r.Value) == "7":
			return errDown
		case string(r.Value) == "9" && attempts.Load()%2 == 0:
			return errDown
		}
		handled.Add(1)
		return nil
	})
	cfg.Observer = m.ConsumerObserver()
	start(t, cfg)
	admin := kadm.NewClient(b.Client(t))
	eventuallyCommitted(t, admin, 1, 2*n+1)
	if handled.Load() != n-1 {
		t.Errorf("%d records were handled, want %d: each but the poison once", handled.Load(), n-1)
	}
	reasons := map[string]string{}
	for _, letter := range b.Consume(t, []string{"orders.dead"}, kafkatest.Count(2)) {
		for _, h := range letter.Headers {
			if h.Key == deadletter.HeaderReason || h.Key == deadletter.HeaderAttempts {
				reasons[string(letter.Value)] += string(h.Value) + " "
			}
		}
	}
	if reasons["7"] != "failed 3 " || reasons["another payload"] != "mismatch 0 " || len(reasons) != 2 {
		t.Errorf("the dead letters are %q", reasons)
	}
}

// TestAHandlersVerdictStands has no way to write dead letters for a while: the
// handler is not asked again, and nothing is committed before.
func TestAHandlersVerdictStands(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	b.CreateTopic(t, "orders.dead", 1, nil)
	produce(t, b, record(0, "k", "poison"), record(0, "k", "good"))
	bury, err := consumer.DeadLetterTopic(b.Client(t), "orders.dead")
	if err != nil {
		t.Fatal(err)
	}
	admin := kadm.NewClient(b.Client(t))
	var tries, poisoned, good atomic.Int64
	p := processor(t, func(o *idempotency.Options) {
		o.DeadLetter = func(ctx context.Context, letter idempotency.DeadLetter) error {
			if tries.Add(1) <= 10 {
				return errDown
			}
			if at := committed(t, admin, 0); at != 0 || good.Load() != 0 {
				t.Errorf("committed %d, handled %d behind a record without a dead letter", at, good.Load())
			}
			return bury(ctx, letter)
		}
	})
	start(t, config(b, p, func(_ context.Context, r *kgo.Record) error {
		if string(r.Value) == "poison" {
			poisoned.Add(1)
			return idempotency.Terminal(errDown)
		}
		good.Add(1)
		return nil
	}))
	eventuallyCommitted(t, admin, 1, 2)
	if poisoned.Load() != 1 || good.Load() != 1 {
		t.Errorf("the poison was handled %d times, the good record %d times", poisoned.Load(), good.Load())
	}
	letter := b.Consume(t, []string{"orders.dead"}, kafkatest.Count(1))[0]
	if attempts, err := consumer.Header(deadletter.HeaderAttempts)(letter); attempts != "1" || err != nil {
		t.Errorf("the dead letter tells of %q attempts, %v", attempts, err)
	}
}
