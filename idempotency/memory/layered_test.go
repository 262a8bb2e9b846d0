package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storetest"
)

// small windows evict and rotate all the time.
var small = memory.WindowOptions{Exact: 4, Filtered: 8, FalsePositives: 0.3}

func layered(t testing.TB, trust bool) storetest.Subject {
	clock := newFakeClock()
	s := memory.New(memory.Options{Now: clock.Now})
	l := layer(t)(memory.Layer(s, memory.NewWindow(small), memory.LayerOptions{Trust: trust, Now: clock.Now}))
	subject := storetest.Subject{Store: l, Operator: s, Advance: clock.Advance, MaxResultBytes: 4096}
	if trust {
		subject.Operator = nil // unnoticed: the price of Trust
	}
	return subject
}

func TestALayerKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject { return layered(t, false) })
	storetest.Histories(t, layered(t, false), storetest.Options{Steps: steps / 5})
}

func TestATrustedLayerKeepsTheContractWithoutOperators(t *testing.T) {
	storetest.Histories(t, layered(t, true), storetest.Options{Steps: steps / 5})
}

// counted is a store with a count of the calls.
type counted struct {
	storage.Store
	claims, inspects int
	err              error
}

func (s *counted) Claim(ctx context.Context, k storage.Key, r storage.ClaimRequest) (storage.Claim, error) {
	s.claims++
	return s.Store.Claim(ctx, k, r)
}

func (s *counted) Inspect(ctx context.Context, k storage.Key) (storage.Record, error) {
	s.inspects++
	if s.err != nil {
		return storage.Record{}, s.err
	}
	return s.Store.Inspect(ctx, k)
}

func (s *counted) expect(t *testing.T, claims, inspects int) {
	t.Helper()
	if s.claims != claims || s.inspects != inspects {
		t.Errorf("%d claims and %d inspections, want %d and %d", s.claims, s.inspects, claims, inspects)
	}
	s.claims, s.inspects = 0, 0
}

func TestAHitIsConfirmedByTheStore(t *testing.T) {
	inner := memory.New(memory.Options{})
	s := &counted{Store: inner}
	l := layer(t)(memory.Layer(s, memory.NewWindow(memory.WindowOptions{}), memory.LayerOptions{}))
	mustComplete(t, l, mustClaim(t, l, key(1)).Lease)
	s.expect(t, 1, 0)

	if c := mustClaim(t, l, key(1)); c.Outcome != storage.Duplicate || c.Layer != storage.LayerStore {
		t.Errorf("%s by %s", c.Outcome, c.Layer)
	}
	s.expect(t, 0, 1)

	if _, err := inner.Purge(t.Context(), storage.Filter{Scope: "test"}); err != nil {
		t.Fatal(err)
	}
	if c := mustClaim(t, l, key(1)); c.Outcome != storage.Claimed {
		t.Errorf("%s: a hit in memory skipped a message that the store does not know", c.Outcome)
	}
	s.expect(t, 1, 1)
}

func TestAHitThatCannotBeConfirmedIsNoAnswer(t *testing.T) {
	s := &counted{Store: memory.New(memory.Options{})}
	l := layer(t)(memory.Layer(s, memory.NewWindow(memory.WindowOptions{}), memory.LayerOptions{}))
	mustComplete(t, l, mustClaim(t, l, key(1)).Lease)
	s.err = errors.New("store is down")
	_, err := l.Claim(t.Context(), key(1), storage.ClaimRequest{
		Owner: "owner", Fingerprint: "b1:payload", Lease: time.Second, Retention: time.Second,
	})
	if !errors.Is(err, s.err) {
		t.Error(err)
	}
}

func TestADuplicateFoundInTheStoreIsRemembered(t *testing.T) {
	s := &counted{Store: memory.New(memory.Options{})}
	mustComplete(t, s, mustClaim(t, s, key(1)).Lease)
	for _, trust := range []bool{false, true} {
		s.claims = 0
		l := layer(t)(memory.Layer(s, memory.NewWindow(memory.WindowOptions{}), memory.LayerOptions{Trust: trust}))
		mustClaim(t, l, key(1))
		s.expect(t, 1, 0)
		if c := mustClaim(t, l, key(1)); c.Outcome != storage.Duplicate || c.Layer != storage.LayerStore {
			t.Errorf("%s by %s", c.Outcome, c.Layer)
		}
		s.expect(t, 0, 1) // not completed by the same process
	}
}

func TestTrustAnswersForWhatThisProcessCompleted(t *testing.T) {
	clock := newFakeClock()
	s := &counted{Store: memory.New(memory.Options{Now: clock.Now})}
	w := memory.NewWindow(memory.WindowOptions{Exact: 2})
	l := layer(t)(memory.Layer(s, w, memory.LayerOptions{Trust: true, MaxResultBytes: 5, Now: clock.Now}))
	complete := func(id int, result string) {
		t.Helper()
		if err := l.Complete(t.Context(), mustClaim(t, l, key(id)).Lease, []byte(result), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	duplicate := func(id int, layer storage.Layer, result string) {
		t.Helper()
		c := mustClaim(t, l, key(id))
		if c.Outcome != storage.Duplicate || c.Layer != layer || string(c.Result) != result || c.Attempts != 1 {
			t.Errorf("%+v", c)
		}
		clear(c.Result) // the caller's
	}

	complete(1, "small")
	s.expect(t, 1, 0)
	duplicate(1, storage.LayerMemory, "small")
	duplicate(1, storage.LayerMemory, "small")
	s.expect(t, 0, 0)

	complete(2, "too large")
	duplicate(2, storage.LayerStore, "too large")
	s.expect(t, 1, 1)

	complete(3, "") // 1 is now known to the filter only
	s.expect(t, 1, 0)
	duplicate(1, storage.LayerStore, "small")
	s.expect(t, 0, 1)

	_, err := l.Claim(t.Context(), key(3), storage.ClaimRequest{
		Owner: "owner", Fingerprint: "b1:another", Lease: time.Second, Retention: time.Second,
	})
	if !errors.Is(err, storage.ErrMismatch) {
		t.Errorf("another payload: %v", err)
	}

	clock.Advance(time.Hour)
	if c := mustClaim(t, l, key(3)); c.Outcome != storage.Claimed {
		t.Errorf("after the retention: %s", c.Outcome)
	}
}

func message(n int) idempotency.Message {
	return idempotency.Message{Key: key(n), Fingerprint: "b1:payload"}
}

func TestWindow(t *testing.T) {
	const filtered = 1000
	w := memory.NewWindow(memory.WindowOptions{Exact: 10, Filtered: filtered})
	for n := range 10 * filtered {
		w.Add(message(n))
		if hit := w.Lookup(message(n)); hit != memory.Exact {
			t.Fatalf("just added: %s", hit)
		}
		if old := n - filtered + 1; old >= 0 && w.Lookup(message(old)) == memory.Unknown {
			t.Fatalf("message %d is unknown after %d", old, n)
		}
	}
	if hit := w.Lookup(message(10*filtered - 50)); hit != memory.Probable {
		t.Errorf("before the last ten: %s", hit)
	}
	known := 0
	for n := range filtered {
		if w.Lookup(message(n)) != memory.Unknown {
			known++
		}
	}
	if known > filtered/20 {
		t.Errorf("%d of %d are known after nine generations", known, filtered)
	}
	other := message(10*filtered - 1)
	other.Fingerprint = "b1:another"
	if hit := w.Lookup(other); hit == memory.Exact {
		t.Error("another payload is the same message")
	}
	w.Forget(message(10*filtered - 1))
	if hit := w.Lookup(message(10*filtered - 1)); hit == memory.Exact {
		t.Error("forgotten, but exact")
	}
}

// BenchmarkWindowHitRate repeats messages at distances that are mostly short, as
// redeliveries are, over three generations.
func BenchmarkWindowHitRate(b *testing.B) {
	const filtered = 10_000
	for _, exact := range []int{100, 1000, 10_000} {
		b.Run("exact="+strconv.Itoa(exact), func(b *testing.B) {
			random := rand.New(rand.NewPCG(1, 2))
			zipf := rand.NewZipf(random, 1.1, 8, 3*filtered)
			w := memory.NewWindow(memory.WindowOptions{Exact: exact, Filtered: filtered})
			var hits [3]int
			n := 0
			for ; b.Loop(); n++ {
				w.Add(message(n))
				hits[w.Lookup(message(max(0, n-int(zipf.Uint64()))))]++
			}
			b.ReportMetric(100*float64(hits[memory.Exact])/float64(n), "%exact")
			b.ReportMetric(100*float64(hits[memory.Probable])/float64(n), "%probable")
		})
	}
}

func ExampleLayer() {
	store := memory.New(memory.Options{}) // in earnest, a shared store
	layered, err := memory.Layer(store, memory.NewWindow(memory.WindowOptions{}), memory.LayerOptions{Trust: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	processor, err := idempotency.New(idempotency.Options{Store: layered, MaxAttempts: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer processor.Close()
	m := idempotency.Message{Key: storage.Key{Scope: "shipping", ID: "1"}}
	for range 2 {
		r, err := processor.Run(context.Background(), m, func(context.Context) ([]byte, error) { return []byte("shipped"), nil })
		fmt.Println(r.Disposition, r.Layer, strings.ToUpper(string(r.Value)), err)
	}
	// Output:
	// handled store SHIPPED <nil>
	// skipped memory SHIPPED <nil>
}

func ExampleWindow() {
	window := memory.NewWindow(memory.WindowOptions{Exact: 1000, Filtered: 100_000})
	m := idempotency.Message{Key: storage.Key{Scope: "shipping", ID: "1"}}
	fmt.Println(window.Lookup(m))
	window.Add(m)
	fmt.Println(window.Lookup(m))
	window.Forget(m)
	fmt.Println(window.Lookup(m))
	// Output:
	// unknown
	// exact
	// probable
}

func ExampleNew() {
	store := memory.New(memory.Options{Records: 10_000})
	k := storage.Key{Scope: "shipping", ID: "1"}
	ctx := context.Background()
	for range 2 {
		claim, err := store.Claim(ctx, k, storage.ClaimRequest{
			Owner: storage.NewOwner(), Lease: time.Minute, Retention: time.Hour,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(claim.Outcome)
		if claim.Outcome == storage.Claimed {
			err = store.Complete(ctx, claim.Lease, nil, time.Hour)
			fmt.Println("completed", err)
		}
	}
	// Output:
	// claimed
	// completed <nil>
	// duplicate
}

// layer returns a function ending the test where the layer cannot be made.
func layer(t testing.TB) func(l *memory.Layered, err error) *memory.Layered {
	return func(l *memory.Layered, err error) *memory.Layered {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}
