package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("store is down")

// faulty is a store with calls that can be made to fail before they are carried
// out, or after: then the answer is lost.
type faulty struct {
	storage.Store
	mu            sync.Mutex
	before, after func(op storage.Operation) error
	hang          func(op storage.Operation) error // after an error, not returned, the call lasts until its deadline
	deaf          chan struct{}                    // if set, a claim lasts until closed, beyond the context
	calls         []storage.Operation
}

func (s *faulty) fail(before, after func(op storage.Operation) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

// count returns how often the operation was asked for.
func (s *faulty) count(op storage.Operation) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c == op {
			n++
		}
	}
	return n
}

func (s *faulty) do(ctx context.Context, op storage.Operation, call func() error) error {
	s.mu.Lock()
	s.calls = append(s.calls, op)
	before, after := s.before, s.after
	s.mu.Unlock()
	if s.deaf != nil && op == storage.OpClaim {
		<-s.deaf
		ctx = context.WithoutCancel(ctx)
	}
	if s.hang != nil && s.hang(op) != nil {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if before != nil {
		if err := before(op); err != nil {
			return err
		}
	}
	err := call()
	if after != nil {
		if lost := after(op); lost != nil {
			return lost
		}
	}
	return err
}

func (s *faulty) Claim(ctx context.Context, k storage.Key, r storage.ClaimRequest) (c storage.Claim, err error) {
	err = s.do(ctx, storage.OpClaim, func() (err error) {
		c, err = s.Store.Claim(ctx, k, r)
		return err
	})
	if err != nil {
		c = storage.Claim{}
	}
	return c, err
}

func (s *faulty) Extend(ctx context.Context, l storage.Lease, d time.Duration) error {
	return s.do(ctx, storage.OpExtend, func() error { return s.Store.Extend(ctx, l, d) })
}

func (s *faulty) Complete(ctx context.Context, l storage.Lease, result []byte, retention time.Duration) error {
	return s.do(ctx, storage.OpComplete, func() error { return s.Store.Complete(ctx, l, result, retention) })
}

func (s *faulty) Fail(ctx context.Context, l storage.Lease, f storage.Failure) error {
	return s.do(ctx, storage.OpFail, func() error { return s.Store.Fail(ctx, l, f) })
}

// always fails the operations named.
func always(ops ...storage.Operation) func(op storage.Operation) error {
	return func(op storage.Operation) error {
		for _, o := range ops {
			if o == op {
				return errDown
			}
		}
		return nil
	}
}

// once fails the first call of the operation.
func once(op storage.Operation) func(op storage.Operation) error {
	var done sync.Once
	return func(got storage.Operation) (err error) {
		if got == op {
			done.Do(func() { err = errDown })
		}
		return err
	}
}

// fixture is a Processor around a faulty store in memory.
type fixture struct {
	*testing.T
	memory  *memory.Store
	store   *faulty
	options idempotency.Options
	dead    []idempotency.DeadLetter
	losses  []idempotency.Loss
	message idempotency.Message
}

func newFixture(t *testing.T) *fixture {
	m := memory.New(memory.Options{})
	f := &fixture{T: t, memory: m, store: &faulty{Store: m}}
	f.message = idempotency.Message{
		Key: storage.Key{Scope: "test", ID: "message"}, Fingerprint: idempotency.FingerprintBytes([]byte("payload")),
	}
	f.options = idempotency.Options{
		Store: f.store,
		DeadLetter: func(_ context.Context, d idempotency.DeadLetter) error {
			f.dead = append(f.dead, d)
			return nil
		},
		Compensate: func(_ context.Context, l idempotency.Loss) { f.losses = append(f.losses, l) },
	}
	return f
}

// processor returns a Processor with the options, closed at the end of the test.
func (f *fixture) processor() *idempotency.Processor {
	f.Helper()
	return processor(f, f.options)
}

// processor returns a Processor, closed at the end of the test.
func processor(t testing.TB, o idempotency.Options) *idempotency.Processor {
	t.Helper()
	p, err := idempotency.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// run handles the message once.
func (f *fixture) run(h idempotency.Handler) (idempotency.Result, error) {
	f.Helper()
	return f.runWith(f.Context(), h)
}

func (f *fixture) runWith(ctx context.Context, h idempotency.Handler) (idempotency.Result, error) {
	f.Helper()
	r, err := f.processor().Run(ctx, f.message, h)
	if (err == nil) != r.Done() {
		f.Fatalf("%s and error %v", r.Disposition, err)
	}
	return r, err
}

// runAfter handles the message once, with an earlier Run's pending state.
func (f *fixture) runAfter(ctx context.Context, p *idempotency.Pending, h idempotency.Handler) (idempotency.Result, error) {
	f.Helper()
	m := f.message
	defer func() { f.message = m }()
	f.message.Pending = p
	return f.runWith(ctx, h)
}

// after returns the message for another Run.
func after(m idempotency.Message, p *idempotency.Pending) idempotency.Message {
	m.Pending = p
	return m
}

// tries handles the message once and checks the outcome.
func (f *fixture) tries(want idempotency.Disposition, h idempotency.Handler) (idempotency.Result, error) {
	f.Helper()
	r, err := f.run(h)
	if r.Disposition != want {
		f.Fatalf("%s (%v), want %s", r.Disposition, err, want)
	}
	return r, err
}

// becomes is tries without the error.
func (f *fixture) becomes(want idempotency.Disposition, h idempotency.Handler) idempotency.Result {
	f.Helper()
	r, _ := f.tries(want, h)
	return r
}

func (f *fixture) record() storage.Record {
	f.Helper()
	r, err := f.memory.Inspect(context.Background(), f.message.Key)
	if err != nil {
		f.Fatal(err)
	}
	return r
}

// wait lets time pass, in a bubble.
func wait(d time.Duration) { <-time.After(d) }

func succeed(context.Context) ([]byte, error) { return []byte("result"), nil }

func unreachable(t testing.TB) idempotency.Handler {
	return func(context.Context) ([]byte, error) {
		t.Error("the handler ran")
		return nil, nil
	}
}

var errHandler = errors.New("handler failed")

func failing(context.Context) ([]byte, error) { return nil, errHandler }

// until returns a handler working until the context ends, and keeps the cause.
func until(cause *error) idempotency.Handler {
	return func(ctx context.Context) ([]byte, error) {
		<-ctx.Done()
		*cause = context.Cause(ctx)
		return nil, ctx.Err()
	}
}
