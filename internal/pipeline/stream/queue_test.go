package stream

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// put pushes an item once there is room, and offers all.
func (q *queue) put(ctx context.Context, it item) error {
	if err := q.room(ctx, it.memory); err != nil {
		return err
	}
	q.push(it)
	q.offer()
	return nil
}

// fetch takes the next batch once there is one, as the deliverer does.
func (q *queue) fetch(ctx context.Context, linger time.Duration, dst []item) ([]item, error) {
	first, err := q.await(ctx, linger)
	if err != nil || first == nil {
		return nil, err
	}
	return q.take(dst), nil
}

func sized(n int64) item {
	return item{Item: delivery.Item{Event: &transform.Event{}, Size: n}, memory: n}
}

// attempt calls fn, in a synctest bubble, and reports whether fn is still blocked once
// nothing else moves.
func attempt(fn func() error) (blocked func() bool, result func() error) {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	blocked = func() bool { synctest.Wait(); return len(done) == 0 }
	return blocked, func() error { return <-done }
}

func TestQueuePushBlocksAtTheBoundUntilReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100)
		for range 2 {
			must.OK(t, q.put(t.Context(), sized(50)))
		}
		blocked, result := attempt(func() error { return q.put(t.Context(), sized(1)) })
		if !blocked() {
			t.Error("push went over the bound")
		}
		must.Get(q.fetch(t.Context(), 0, nil))(t)
		if !blocked() {
			t.Error("push went on although what was taken is not released")
		}
		q.free(50)
		if err := result(); err != nil || q.bytes() != 51 {
			t.Errorf("push = %v, %d bytes in flight, want 51", err, q.bytes())
		}
	})
}

func TestQueueLetsAnItemBeyondTheBoundInAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100)
		must.OK(t, q.put(t.Context(), sized(1000)))
		blocked, result := attempt(func() error { return q.put(t.Context(), sized(1)) })
		if !blocked() {
			t.Error("a second item joined one that is larger than the bound")
		}
		if batch, err := q.fetch(t.Context(), 0, nil); err != nil || len(batch) != 1 {
			t.Errorf("took %d items, %v", len(batch), err)
		}
		q.free(1000)
		if err := result(); err != nil {
			t.Error(err)
		}
	})
}

// A queue never empty, because filled faster, must not grow.
func TestQueueDoesNotGrowWhileItIsNeverEmpty(t *testing.T) {
	q := newQueue(1 << 40)
	next, want := int64(1), int64(1)
	push := func(n int) {
		for range n {
			must.OK(t, q.put(t.Context(), sized(next)))
			next++
		}
	}
	push(100)
	var batch []item
	for range 20_000 {
		push(1)
		q.mu.Lock()
		q.queued = delivery.BatchBytes // a batch is ready, of the first item
		q.items[q.head].Size += delivery.BatchBytes
		q.mu.Unlock()
		var err error
		if batch, err = q.fetch(t.Context(), time.Hour, batch); err != nil || len(batch) != 1 {
			t.Fatalf("took %d items, %v", len(batch), err)
		}
		if got := batch[0].Size - delivery.BatchBytes; got != want {
			t.Fatalf("took item %d, want %d", got, want)
		}
		want++
	}
	if n := cap(q.items); n > 1000 {
		t.Errorf("a queue of 100 items has room for %d", n)
	}
}

func TestQueuePushEndsWithItsContext(t *testing.T) {
	cause := errors.New("asked to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	q := newQueue(1)
	_ = q.put(ctx, sized(1)) // has room: the context does not matter
	if err := q.put(ctx, sized(1)); !errors.Is(err, cause) {
		t.Errorf("push = %v, want the context's cause", err)
	}
	if q.bytes() != 1 {
		t.Errorf("%d bytes in flight, want 1: the second item was not taken in", q.bytes())
	}
}

func TestQueueTake(t *testing.T) {
	const linger = 5 * time.Millisecond
	for name, c := range map[string]struct {
		sizes  []int64
		after  time.Duration // since the last batch was taken; 0: none was
		close  bool
		items  int
		waited time.Duration
	}{
		"takes the first at once":                  {[]int64{1, 2, 3}, 0, false, 3, 0},
		"lets a small batch wait for linger":       {[]int64{1, 2, 3}, 2 * time.Millisecond, false, 3, 3 * time.Millisecond},
		"does not wait for less than a timer can":  {[]int64{1, 2, 3}, linger - timerTick + 1, false, 3, 0},
		"takes one that comes after linger":        {[]int64{1}, linger, false, 1, 0},
		"takes a full batch at once":               {[]int64{delivery.BatchBytes, 1}, 1, false, 1, 0},
		"cuts before the item that would overflow": {[]int64{delivery.BatchBytes - 1, 2, 3}, 1, false, 1, 0},
		"takes an item larger than a batch alone":  {[]int64{2 * delivery.BatchBytes, 1}, 1, false, 1, 0},
		"does not linger once closed":              {[]int64{1, 2}, 1, true, 2, 0},
		"returns nothing once closed and empty":    {nil, 1, true, 0, 0},
		"fills a batch to the brim":                {[]int64{delivery.BatchBytes / 2, delivery.BatchBytes / 2, 1}, 1, false, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(10 * delivery.BatchBytes)
				if c.after > 0 {
					must.OK(t, q.put(t.Context(), sized(1)))
					must.Get(q.fetch(t.Context(), linger, nil))(t)
					<-time.After(c.after)
				}
				for _, n := range c.sizes {
					must.OK(t, q.put(t.Context(), sized(n)))
				}
				if c.close {
					q.close()
				}
				began := time.Now()
				batch, err := q.fetch(t.Context(), linger, nil)
				if err != nil || len(batch) != c.items || time.Since(began) != c.waited {
					t.Errorf("took %d items after %v, %v; want %d after %v", len(batch), time.Since(began), err, c.items, c.waited)
				}
			})
		})
	}
}

// Events arriving while a transaction could only wait go into the transaction, too.
func TestQueueTakeLetsTheNextTransactionForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rest = 6 * time.Millisecond
		q := newQueue(10 * delivery.BatchBytes)
		began := time.Now()
		q.rest(began.Add(rest))
		must.OK(t, q.put(t.Context(), sized(1)))
		var batch []item
		_, result := attempt(func() (err error) { batch, err = q.fetch(t.Context(), 0, nil); return err })
		<-time.After(rest / 2)
		must.OK(t, q.put(t.Context(), sized(1)))
		if err := result(); err != nil || len(batch) != 2 || time.Since(began) != rest {
			t.Errorf("took %d items after %v, %v; want 2 after %v", len(batch), time.Since(began), err, rest)
		}
		q.rest(time.Now().Add(rest))
		must.OK(t, q.put(t.Context(), sized(delivery.BatchBytes)))
		if batch = must.Get(q.fetch(t.Context(), 0, nil))(t); len(batch) != 1 || time.Since(began) != rest {
			t.Errorf("a full batch waited until %v after the begin", time.Since(began))
		}
	})
}

// calls is a sink with the number of events of each call.
type calls struct {
	sink.Sink
	sizes []int
}

func (c *calls) Deliver(_ context.Context, events []*transform.Event, _ sink.Reject) error {
	c.sizes = append(c.sizes, len(events))
	return nil
}

// Where brokers are far away, a larger max_buffered_bytes makes larger batches, up to that of
// a transaction, and the sink has each at once.
func TestLargeBatchesForFarBrokers(t *testing.T) {
	for limit, want := range map[int64]int64{1 << 20: delivery.BatchBytes, 8 << 20: delivery.BatchBytes, 16 << 20: 2 * delivery.BatchBytes, 64 << 20: transactionBytes} {
		out := &calls{}
		p := New(Parts{
			Options: Options{MaxBufferedBytes: limit}, Router: &transform.Router{}, Sink: out,
			Store: &fakeStore{}, Metrics: &counts{}, Kafka: delivery.NewDownstream(&counts{}), Log: zap.NewNop(),
		})
		const size = delivery.BatchBytes / 8
		n := int(want / size)
		for range n + 1 {
			it := sized(size)
			it.memory = 0
			must.OK(t, p.queue.put(t.Context(), it))
		}
		batch := must.Get(p.queue.fetch(t.Context(), 0, nil))(t)
		if len(batch) != n {
			t.Errorf("with %d bytes in flight a batch has %d events, want %d", limit, len(batch), n)
		}
		if _, err := p.delivery.deliver(t.Context(), batch); err != nil || len(out.sizes) != 1 {
			t.Errorf("the sink had the batch as %v, %v", out.sizes, err)
		}
	}
}

// In a backlog a Kafka transaction has several batches, and waits for no more than one.
func TestTransactionsTakeWhatWaits(t *testing.T) {
	q := New(Parts{
		Options: Options{MaxBufferedBytes: 2 * transactionBytes}, Router: &transform.Router{}, Transactions: &Transactions{Sink: &transactor{}},
		Store: &fakeStore{}, Metrics: &counts{}, Kafka: delivery.NewDownstream(&counts{}), Log: zap.NewNop(),
	}).queue
	const waiting = transactionBytes/delivery.BatchBytes + 1
	for range waiting {
		must.OK(t, q.put(t.Context(), sized(delivery.BatchBytes)))
	}
	for _, want := range []int{waiting - 1, 1} {
		if batch := must.Get(q.fetch(t.Context(), time.Hour, nil))(t); len(batch) != want {
			t.Errorf("took %d batches of %d, want %d", len(batch), waiting, want)
		}
	}
}

// Events read at once go at once: the taker sees nothing before the offer,
// unless no more can come.
func TestQueueTakeWaitsForTheOffer(t *testing.T) {
	for name, end := range map[string]func(*queue){
		"offered": (*queue).offer,
		"closed":  (*queue).close,
		"full": func(q *queue) {
			ctx, stop := context.WithCancel(context.Background())
			go func() { _ = q.room(ctx, 100) }()
			synctest.Wait()
			stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(100)
				var batch []item
				blocked, result := attempt(func() (err error) { batch, err = q.fetch(t.Context(), 0, nil); return err })
				q.push(sized(1))
				q.push(sized(2))
				if !blocked() {
					t.Fatal("take returned before the offer")
				}
				end(q)
				if err := result(); err != nil || len(batch) != 2 {
					t.Errorf("took %d items, %v; want 2", len(batch), err)
				}
			})
		})
	}
}

func TestQueueTakeWakesForALateItemAndForClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100)
		var batch []item
		blocked, result := attempt(func() (err error) { batch, err = q.fetch(t.Context(), 0, nil); return err })
		if !blocked() {
			t.Fatal("take returned without an item")
		}
		_ = q.put(t.Context(), sized(1))
		if err := result(); err != nil || len(batch) != 1 {
			t.Errorf("took %d items, %v", len(batch), err)
		}
		blocked, result = attempt(func() (err error) { batch, err = q.fetch(t.Context(), 0, nil); return err })
		if !blocked() {
			t.Fatal("take returned without an item")
		}
		q.close()
		if err := result(); err != nil || len(batch) != 0 {
			t.Errorf("took %d items from a closed queue, %v", len(batch), err)
		}
	})
}

func TestQueueTakeEndsWithItsContext(t *testing.T) {
	cause := errors.New("asked to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := newQueue(1).fetch(ctx, time.Hour, nil); !errors.Is(err, cause) {
		t.Errorf("take = %v, want the context's cause", err)
	}
}

// Random sizes through a small queue, with late releases: every item arrives once, in
// order, and the bound holds at every step.
func TestQueueKeepsOrderAndBoundUnderLoad(t *testing.T) {
	const items, limit = 20_000, 4 * delivery.BatchBytes
	random := rand.New(rand.NewPCG(1, 2))
	sizes := make([]int64, items)
	for i := range sizes {
		sizes[i] = random.Int64N(delivery.BatchBytes / 16)
		if random.IntN(1000) == 0 {
			sizes[i] = 2 * limit
		}
	}
	q := newQueue(limit)
	var pushing sync.WaitGroup
	pushing.Go(func() {
		defer q.close()
		for i, n := range sizes {
			it := sized(n)
			it.Event.XID = uint32(i)
			if err := q.put(t.Context(), it); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer pushing.Wait()
	next, held := 0, int64(0)
	var batch []item
	for {
		batch = must.Get(q.fetch(t.Context(), 0, batch))(t)
		if len(batch) == 0 {
			break
		}
		for _, it := range batch {
			if int(it.Event.XID) != next || it.Size != sizes[next] {
				t.Fatalf("item %d arrived in place of %d", it.Event.XID, next)
			}
			held += it.Size
			next++
		}
		if n := q.bytes(); n > limit && n != 2*limit { // a lone large item
			t.Fatalf("%d bytes in flight, the bound is %d", n, limit)
		}
		if random.IntN(3) == 0 || q.bytes() == held { // nothing else can free the bound
			q.free(held)
			held = 0
		}
	}
	if next != items {
		t.Errorf("%d items arrived, want %d", next, items)
	}
}

// heap is the memory in use after garbage collections.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Failure mode 55: while the sink takes nothing, the bytes kept are bounded, perhaps many
// more than the bytes published: a row's other columns, and the stream between rows. The
// tests are not parallel, as they look at the process's heap.
func TestMemoryIsBoundedByWhatIsKept(t *testing.T) {
	const large = "repeat('0123456789abcdef', 65536)" // 1 MiB
	for name, c := range map[string]struct {
		prepare []string
		fill    string
		change  func(*Options)
	}{
		"a wide column that nobody asked for": {
			prepare: []string{"ALTER TABLE outbox ADD notes text"},
			fill:    "INSERT INTO outbox SELECT n::text, 'order', 'o', 'Placed', '{}', " + large + " FROM generate_series(1, 300) n",
		},
		"small rows between large ones of another table": {
			prepare: []string{"CREATE TABLE audit (v text)", "CREATE PUBLICATION cdc_outbox FOR TABLE outbox, audit"},
			fill: `DO $$ BEGIN FOR n IN 1..2500 LOOP
				INSERT INTO audit SELECT left(` + large + `, 120000);
				INSERT INTO outbox VALUES (n::text, 'order', 'o', 'Placed', '{}');
			END LOOP; END $$`,
		},
		"a wide column in the first snapshot": {
			prepare: []string{"ALTER TABLE outbox ADD notes text",
				"INSERT INTO outbox SELECT n::text, 'order', 'o', 'Placed', '{}', " + large + " FROM generate_series(1, 300) n"},
			change: func(o *Options) { o.Snapshot = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := sharedDatabase(t)
			for _, sql := range c.prepare {
				d.exec(sql)
			}
			if c.change != nil {
				c.change(&d.opts)
			}
			const limit = 8 << 20
			d.opts.MaxBufferedBytes = limit
			d.gate.hold()
			before := heap()
			i := d.run()
			if c.fill != "" {
				i.streams()
				d.exec(c.fill)
			}
			total := must.Get(strconv.Atoi(d.text("SELECT count(*)::text FROM outbox")))(t)
			inFlight := func() int { return int(i.status().InFlightEvents) }
			eventually(t, "a full buffer, or all events in it", func() bool {
				return i.metrics.inFlight() > limit-5<<19 || inFlight() == total
			})
			if inFlight() == total {
				t.Errorf("all %d events are in flight, counted as %d bytes", total, i.metrics.inFlight())
			}
			if grown := heap() - before; grown > 64<<20 {
				t.Errorf("the heap grew by %d MiB under a limit of %d", grown>>20, limit>>20)
			} else {
				t.Logf("the heap grew by %d MiB with %d of %d events in flight", grown>>20, inFlight(), total)
			}
			d.gate.open()
			arrive(t, d.topic, total)
			i.stop()
		})
	}
}
