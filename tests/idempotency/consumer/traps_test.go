package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/metrics"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

func TestAPointerThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for pointer, fine := range map[string]bool{"/id": true, "": true, "/a~1b/~0": true, "id": false, "/a~2": false, "/a~": false} {
		_, err := consumer.Once{Scope: "s", Runner: newLedger(), ID: consumer.JSONPointer(pointer)}.
			Wrap(func(context.Context, *kgo.Record) error { return nil })
		if (err == nil) != fine || err != nil && !strings.Contains(err.Error(), pointer) {
			t.Errorf("%q: %v", pointer, err)
		}
	}
	// Somebody else's function may not like an empty record.
	greedy := func(r *kgo.Record) (string, error) { return string(r.Headers[0].Value), nil }
	if _, err := (consumer.Once{Scope: "s", Runner: newLedger(), ID: greedy}).
		Wrap(func(context.Context, *kgo.Record) error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestTheScopeIsTheGroupUnlessItIsGiven(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"": group, "other": "other"} {
		b := kafkatest.Start(t)
		b.CreateTopic(t, "orders", 1, nil)
		scopes := make(chan string, 1)
		cfg := config(b, runnerFunc(func(_ context.Context, m idempotency.Message, _ idempotency.Handler) (idempotency.Result, error) {
			if m.Key.ID == "1" {
				scopes <- m.Key.Scope
			}
			return idempotency.Result{Disposition: idempotency.Handled}, nil
		}), func(context.Context, *kgo.Record) error { return nil })
		cfg.Once.Scope = given
		start(t, cfg)
		produce(t, b, record(0, "k", "1"))
		if got := receive(t, "a record", scopes); got != want {
			t.Errorf("scope %q, want %q", got, want)
		}
	}
}

// outage is a store without settlements while down.
type outage struct {
	storage.Store
	down bool
}

func (s *outage) Complete(ctx context.Context, l storage.Lease, result []byte, retention time.Duration) error {
	if s.down {
		return errDown
	}
	return s.Store.Complete(ctx, l, result, retention)
}

// A handler in a user's poll loop is not called again for a record with an
// unrecorded completion.
func TestWrapKeepsWhatIsPending(t *testing.T) {
	t.Parallel()
	store := &outage{Store: memory.New(memory.Options{}), down: true}
	p := processor(t, func(o *idempotency.Options) { o.Store, o.Lease, o.Timeout = store, time.Second, 10*time.Millisecond })
	calls := 0
	process, err := consumer.Once{Scope: "s", Runner: p}.Wrap(func(context.Context, *kgo.Record) error { calls++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	r := record(0, "k", "1")
	for range 3 {
		if result, err := process(t.Context(), r); result.Disposition != idempotency.Unavailable || err == nil {
			t.Fatal(result, err)
		}
	}
	store.down = false
	if _, err := process(t.Context(), r); err != nil || calls != 1 {
		t.Errorf("%v, %d calls", err, calls)
	}
}

// value returns the sum of a metric's series.
func value(t *testing.T, registry *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// Consumers of a single process may share their metrics.
func TestPausedPartitionsAddUp(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	paused := func() float64 { return value(t, registry, "idempotency_consumer_paused_partitions") }
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	b.CreateTopic(t, "bills", 1, nil)
	produce(t, b, record(0, "k", "1"), &kgo.Record{Topic: "bills", Value: []byte("1"), Headers: record(0, "k", "2").Headers})
	failing := func(context.Context, *kgo.Record) error { return errDown }
	var members []*member
	for _, topic := range []string{"orders", "bills"} {
		p := processor(t, func(o *idempotency.Options) { o.MaxAttempts, o.FirstRetry, o.LastRetry = -1, time.Hour, time.Hour })
		cfg := config(b, p, failing)
		cfg.Topics, cfg.Group, cfg.Observer = []string{topic}, topic, m.ConsumerObserver()
		cfg.Once.Scope = topic
		members = append(members, start(t, cfg))
	}
	for want := 2.0; want >= 0; want-- {
		awaitGauge(t, paused, want)
		if want > 0 {
			members[int(want)-1].stop(t)
		}
	}
}

func awaitGauge(t *testing.T, gauge func() float64, want float64) {
	t.Helper()
	await.Until(t, fmt.Sprintf("a gauge of %v", want), func() bool { return gauge() == want })
}

// Two groups under the same scope would each skip the other's messages.
func TestTwoGroupsOfOneScope(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	load(t, b, 1, 50, 1)
	p := processor(t, nil)
	var handled atomic.Int64
	handle := func(context.Context, *kgo.Record) error { handled.Add(1); return nil }
	first := start(t, config(b, p, handle))
	eventuallyCommitted(t, kadm.NewClient(b.Client(t)), 1, 50)
	cfg := config(b, p, handle)
	cfg.Group = "billing"
	second, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err = second.Run(ctx)
	if err == nil || !strings.Contains(err.Error(), "another consumer group uses the same scope") || !strings.Contains(err.Error(), `"billing"`) {
		t.Fatalf("Run returned %v", err)
	}
	offsets, err := kadm.NewClient(b.Client(t)).FetchOffsets(t.Context(), "billing")
	if o, ok := offsets.Lookup("orders", 0); ok && o.At > 0 {
		t.Errorf("it skipped up to %d, %v", o.At, err)
	}
	first.stop(t)
	start(t, config(b, p, handle)).stop(t) // a restart of the same group is no second group
	if handled.Load() != 50 {
		t.Errorf("%d handled", handled.Load())
	}
}

// A store emptied, or failed over to an empty server, is noticed.
func TestAnEmptiedStoreIsNoticed(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	store := memory.New(memory.Options{})
	p := processor(t, func(o *idempotency.Options) { o.Store = store })
	cfg := config(b, p, func(context.Context, *kgo.Record) error { return nil })
	logged := logLines(&cfg)
	startWith(hook.WithInterval(context.Background(), time.Millisecond), t, cfg)
	noticed := false
	await.Until(t, "a line about what was forgotten", func() bool {
		if _, err := store.Purge(t.Context(), storage.Filter{Scope: group, ID: "cdc-outbox/group"}); err != nil {
			t.Fatal(err)
		}
		for len(logged) > 0 {
			noticed = noticed || strings.Contains(<-logged, "has forgotten a key")
		}
		return noticed
	})
}

// checked is a Runner with a faulty store.
type checked struct{ idempotency.Runner }

func (checked) Check(context.Context) ([]storage.Problem, error) {
	return []storage.Problem{{Text: "appendonly is off"}, {Fatal: true, Text: "the table is missing"}}, nil
}

// The consumer looks at the store by itself.
func TestAStoreThatIsNotAsItShouldBeIsNoticed(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	cfg := config(b, checked{newLedger()}, func(context.Context, *kgo.Record) error { return nil })
	logged := logLines(&cfg)
	start(t, cfg)
	for _, want := range []string{`level=WARN.*appendonly is off`, `level=ERROR.*the table is missing`} {
		for pattern := regexp.MustCompile(want); !pattern.MatchString(receive(t, want, logged)); {
		}
	}
}

// logLines returns the first lines the consumer logs.
func logLines(cfg *consumer.Config) <-chan string {
	lines := make(chan string, 100)
	cfg.Logger = slog.New(slog.NewTextHandler(writerFunc(func(line []byte) (int, error) {
		select {
		case lines <- string(line):
		default:
		}
		return len(line), nil
	}), nil))
	return lines
}

// logbook keeps everything logged.
type logbook struct {
	mu    sync.Mutex
	lines []string
}

// keepLog keeps the consumer's log.
func keepLog(cfg *consumer.Config) *logbook {
	l := &logbook{}
	cfg.Logger = slog.New(slog.NewTextHandler(l, nil))
	return l
}

func (l *logbook) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

// count returns how many lines have the text.
func (l *logbook) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// String is the whole log.
func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(line []byte) (int, error) { return f(line) }

func TestAMissingDeadLetterTopicIsRefused(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	if _, err := consumer.DeadLetterTopic(b.Client(t), "missing"); !errors.Is(err, kerr.UnknownTopicOrPartition) || !strings.Contains(err.Error(), "create it") {
		t.Error(err)
	}
	b.CreateTopic(t, "there", 1, nil)
	if _, err := consumer.DeadLetterTopic(b.Client(t), "there"); err != nil {
		t.Error(err)
	}
}

// The dead letter is given once, to the Runner.
func TestTheRunnersDeadLettersTakeWhatCannotRun(t *testing.T) {
	t.Parallel()
	var buried []idempotency.DeadLetter
	p := processor(t, func(o *idempotency.Options) {
		o.DeadLetter = func(ctx context.Context, d idempotency.DeadLetter) error {
			if consumer.RecordFrom(ctx) == nil {
				t.Error("the context holds no record")
			}
			buried = append(buried, d)
			return nil
		}
	})
	process, err := consumer.Once{Scope: "s", Runner: p}.Wrap(func(context.Context, *kgo.Record) error { t.Error("the handler ran"); return nil })
	if err != nil {
		t.Fatal(err)
	}
	result, err := process(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("no id")})
	if result.Disposition != idempotency.DeadLettered || err != nil || len(buried) != 1 || !errors.Is(buried[0].Reason, storage.ErrBadKey) {
		t.Errorf("%+v, %v, %+v", result, err, buried)
	}
}
