package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/deadletter"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

// TestOrderAndCommits handles records with random failures, and looks at
// everything committed all the while.
func TestOrderAndCommits(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]bool{"PartitionOrder": false, "KeyOrder": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const partitions, n, keys = 3, 200, 5
			b := kafkatest.Start(t)
			b.CreateTopic(t, "orders", partitions, nil)
			records := load(t, b, partitions, n, keys)
			check := newChecker(order)
			cfg := config(b, newLedger(), func(ctx context.Context, r *kgo.Record) error {
				defer check.begin(r)()
				if rand.N(10) == 0 {
					return errDown
				}
				check.finish(r)
				return nil
			})
			cfg.KeyOrder = order
			cfg.MaxBufferedRecords = 20
			start(t, cfg)

			admin := kadm.NewClient(b.Client(t))
			await.Until(t, "all records to be committed", func() bool {
				complete := true
				for p := range int32(partitions) {
					at := committed(t, admin, p)
					check.committed(p, at)
					complete = complete && at == n
				}
				return complete
			})
			check.verify(t)
			if got := check.count(); got != len(records) {
				t.Errorf("%d records were finished, want %d", got, len(records))
			}
		})
	}
}

// checker notes what goes against the order, and commits of everything not
// finished.
type checker struct {
	keyOrder   bool
	mu         sync.Mutex
	running    map[string]bool
	last       map[string]int64
	done       map[string]bool // partition@offset
	violations []string
}

func newChecker(keyOrder bool) *checker {
	return &checker{keyOrder: keyOrder, running: map[string]bool{}, last: map[string]int64{}, done: map[string]bool{}}
}

func (c *checker) lane(r *kgo.Record) string {
	if c.keyOrder {
		return fmt.Sprintf("%d %s", r.Partition, r.Key)
	}
	return fmt.Sprint(r.Partition)
}

func at(partition int32, offset int64) string { return fmt.Sprintf("%d@%d", partition, offset) }

func (c *checker) begin(r *kgo.Record) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lane := c.lane(r)
	if c.running[lane] {
		c.violations = append(c.violations, "two handlers at once in "+lane)
	}
	if r.Offset <= c.last[lane]-1 {
		c.violations = append(c.violations, fmt.Sprintf("offset %d came after %d in %s", r.Offset, c.last[lane]-1, lane))
	}
	c.running[lane] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running[lane] = false
	}
}

func (c *checker) finish(r *kgo.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[c.lane(r)] = r.Offset + 1
	if c.done[at(r.Partition, r.Offset)] {
		c.violations = append(c.violations, "handled twice: "+at(r.Partition, r.Offset))
	}
	c.done[at(r.Partition, r.Offset)] = true
}

func (c *checker) committed(partition int32, offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range offset {
		if !c.done[at(partition, o)] {
			c.violations = append(c.violations, fmt.Sprintf("offset %d was committed before %d was finished in partition %d", offset, o, partition))
		}
	}
}

func (c *checker) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.done)
}

func (c *checker) verify(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range slices.Compact(slices.Clone(c.violations)) {
		t.Error(v)
	}
}

func TestOneKeyThatWaitsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	const n = 500 // more than is buffered
	l := newLedger()
	l.set("0/0", "running") // by somebody else
	records := load(t, b, 1, n, 2)
	var handled atomic.Int64
	var paused atomic.Int64
	cfg := config(b, l, func(context.Context, *kgo.Record) error { handled.Add(1); return nil })
	cfg.KeyOrder, cfg.MaxBufferedRecords = true, 100
	cfg.Observer.PausedPartitions = func(change int) { paused.Add(int64(change)) }
	start(t, cfg)
	await.Until(t, "the other key's records among those buffered", func() bool { return handled.Load() >= 50 })
	await.Until(t, "the other's lease to be asked for so often that fetching is paused", func() bool { return l.count(&l.elsewhere) > 200 })
	admin := kadm.NewClient(b.Client(t))
	if at := committed(t, admin, 0); at != 0 {
		t.Errorf("offset %d was committed although the first record is not finished", at)
	}
	if most := int64(100 + 50); handled.Load() > most {
		t.Errorf("%d records were handled, more than the %d that may be held", handled.Load(), most)
	}
	await.Until(t, "the partition to count as paused", func() bool { return paused.Load() == 1 })
	l.set("0/0", "done")
	eventuallyCommitted(t, admin, 1, n)
	await.Until(t, "no partition to count as paused", func() bool { return paused.Load() == 0 })
	if got := handled.Load(); got != int64(len(records)-1) {
		t.Errorf("%d records were handled, want %d: all but that of somebody else", got, len(records)-1)
	}
}

func TestStoreDownPausesAllAndResumes(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	const partitions, n = 4, 50
	b.CreateTopic(t, "orders", partitions, nil)
	load(t, b, partitions, n, 1)
	l := newLedger()
	l.setDown(true)
	var handled, paused atomic.Int64
	release := make(chan struct{})
	cfg := config(b, l, func(context.Context, *kgo.Record) error {
		handled.Add(1)
		<-release // a slow handler: the others must not wait for the prober's
		return nil
	})
	cfg.Observer.PausedPartitions = func(change int) { paused.Add(int64(change)) }
	start(t, cfg)
	await.Until(t, "several probes", func() bool { return l.count(&l.unavailable) > 5+cfg.Concurrency })
	await.Until(t, "partitions to count as paused", func() bool { return paused.Load() == partitions })
	if handled.Load() != 0 {
		t.Error("a handler ran although the store cannot be asked")
	}
	l.setDown(false)
	await.Until(t, "all partitions to go on", func() bool { return handled.Load() == partitions })
	close(release)
	admin := kadm.NewClient(b.Client(t))
	eventuallyCommitted(t, admin, partitions, n)
}

func TestStopDrains(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	load(t, b, 1, 10, 1)
	running, finish := make(chan struct{}, 10), make(chan struct{})
	var finished atomic.Int64
	cfg := config(b, newLedger(), func(ctx context.Context, _ *kgo.Record) error {
		running <- struct{}{}
		<-finish
		finished.Add(1)
		return ctx.Err()
	})
	cfg.CommitInterval = time.Hour
	m := start(t, cfg)
	receive(t, "the first handler", running)
	m.cancel()
	close(finish)
	m.stop(t)
	if got, want := committed(t, kadm.NewClient(b.Client(t)), 0), finished.Load(); got != want || got == 0 {
		t.Errorf("committed %d after the stop, want all %d that were handled", got, want)
	}
	groups, err := kadm.NewClient(b.Client(t)).DescribeGroups(context.Background(), group)
	if err != nil {
		t.Fatal(err)
	}
	if left := groups[group].Members; len(left) != 0 {
		t.Errorf("the group has %d members after the stop", len(left))
	}
}

func TestStopCutsOffWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	load(t, b, 1, 2, 1)
	causes, running := make(chan error, 1), make(chan struct{}, 2)
	var abandoned atomic.Int64
	cfg := config(b, newLedger(), func(ctx context.Context, _ *kgo.Record) error {
		running <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	cfg.DrainTimeout = time.Millisecond
	cfg.Observer.Abandoned = func(n int) { abandoned.Add(int64(n)) }
	m := start(t, cfg)
	receive(t, "the handler", running)
	m.stop(t)
	if cause := receive(t, "the cause", causes); !cutOff(cause, "the consumer is stopping") {
		t.Errorf("the handler's context ended because %v", cause)
	}
	if abandoned.Load() != 1 {
		t.Errorf("%d handlers were abandoned, want 1", abandoned.Load())
	}
	if got := committed(t, kadm.NewClient(b.Client(t)), 0); got != 0 {
		t.Errorf("committed %d although no record is finished", got)
	}
}

func TestDeadLetterThatCannotBeWrittenIsNotCommitted(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	produce(t, b, &kgo.Record{Topic: "orders", Key: []byte("k"), Value: []byte("no id")}, record(0, "k", "fine"))
	letters := b.Client(t, kgo.UnknownTopicRetries(0), kgo.MetadataMinAge(10*time.Millisecond))
	b.CreateTopic(t, "orders.dead", 1, nil)
	bury, err := consumer.DeadLetterTopic(letters, "orders.dead")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kadm.NewClient(b.Client(t)).DeleteTopics(t.Context(), "orders.dead"); err != nil {
		t.Fatal(err)
	}
	var failures, handled atomic.Int64
	cfg := config(b, newLedger(), func(context.Context, *kgo.Record) error { handled.Add(1); return nil })
	cfg.Once.Runner = burying{cfg.Once.Runner, bury}
	cfg.Observer.Processed = func(_ *kgo.Record, result idempotency.Result, _ error, _ time.Duration) {
		if !result.Done() {
			failures.Add(1)
		}
	}
	start(t, cfg)
	await.Until(t, "attempts to write the dead letter", func() bool { return failures.Load() > 3 })
	admin := kadm.NewClient(b.Client(t))
	if at := committed(t, admin, 0); at != 0 || handled.Load() != 0 {
		t.Errorf("committed %d, handled %d, although the dead letter is not written", at, handled.Load())
	}
	b.CreateTopic(t, "orders.dead", 1, nil)
	eventuallyCommitted(t, admin, 1, 2)
	letter := b.Consume(t, []string{"orders.dead"}, kafkatest.Count(1))[0]
	headers := map[string]string{}
	for _, h := range letter.Headers {
		headers[h.Key] = string(h.Value)
	}
	want := map[string]string{
		deadletter.HeaderReason: deadletter.ReasonBadKey, deadletter.HeaderScope: group, deadletter.HeaderAttempts: "0",
		deadletter.HeaderTopic: "orders", deadletter.HeaderPartition: "0", deadletter.HeaderOffset: "0",
	}
	got := maps.Clone(headers)
	maps.DeleteFunc(got, func(k, _ string) bool { _, ok := want[k]; return !ok })
	if !maps.Equal(got, want) {
		t.Errorf("the dead letter's headers are %v, want %v among them", headers, want)
	}
	if string(letter.Key) != "k" || string(letter.Value) != "no id" {
		t.Errorf("the dead letter holds %q: %q", letter.Key, letter.Value)
	}
}

func TestRequiredTopicIsMissing(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	cfg := config(b, newLedger(), func(context.Context, *kgo.Record) error { return nil })
	cfg.RequireTopics = true
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil {
		t.Error("Run returned nil although the topic is missing")
	}
}

func TestTopicThatComesLaterIsConsumed(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	handled := make(chan struct{}, 1)
	cfg := config(b, newLedger(), func(context.Context, *kgo.Record) error { handled <- struct{}{}; return nil })
	cfg.Options = append(cfg.Options, kgo.MetadataMaxAge(200*time.Millisecond))
	start(t, cfg)
	b.CreateTopic(t, "orders", 1, nil)
	produce(t, b, record(0, "k", "first"))
	receive(t, "the record", handled)
}

func TestTopicsByRegex(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	load(t, b, 1, 1, 1)
	handled := make(chan struct{}, 1)
	cfg := config(b, newLedger(), func(context.Context, *kgo.Record) error { handled <- struct{}{}; return nil })
	cfg.Topics, cfg.RequireTopics = []string{"ord.*"}, true
	cfg.Options = append(cfg.Options, kgo.ConsumeRegex())
	start(t, cfg)
	receive(t, "the record", handled)
}

// TestE2EBrokerGoesAndComes: neither an error nor an end.
func TestE2EBrokerGoesAndComes(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	load(t, b, 1, 5, 1)
	b.Stop(t)
	var handled atomic.Int64
	cfg := config(b, newLedger(), func(context.Context, *kgo.Record) error { handled.Add(1); return nil })
	var told log
	cfg.Logger = slog.New(slog.NewTextHandler(&told, nil))
	cfg.Options = append(cfg.Options, kgo.RequestRetries(1), kgo.RetryTimeout(time.Second))
	start(t, cfg)
	await.Until(t, "the consumer to find no broker", func() bool { return len(told.lines("level=WARN")) > 0 })
	b.Resume(t)
	await.Until(t, "the records", func() bool { return handled.Load() == 5 })
	b.Restart(t)
	produce(t, b, record(0, "k", "late"))
	await.Until(t, "the record after the restart", func() bool { return handled.Load() == 6 })
}
