package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// LayerOptions are all optional.
type LayerOptions struct {
	// Trust answers, without asking the store, the duplicate of a message completed
	// by the same process within the retention and remembered exactly by the
	// Window: with storage.LayerMemory. Changes by others meanwhile, such as an
	// operator's purge for another run, are then not seen until the Window forgets
	// the key.
	Trust bool
	// MaxResultBytes bounds the results kept for Trust: larger results are asked
	// of the store. 4 KiB if 0.
	MaxResultBytes int
	// Now is the clock by which Trust ends with the retention; time.Now if nil.
	Now func() time.Time
}

// Layered is a Store with a Window in front. A claim of a message the Window
// knows begins with Inspect, a read: the store confirms the duplicate, or the
// claim goes on as without a Window. Make a Layered with Layer. It is safe for
// concurrent use.
//
// Layered is no Operator: an operator's requests go to the store itself.
type Layered struct {
	storage.Store // extends and inspects
	window        *Window
	options       LayerOptions

	mu sync.Mutex
	// claims are the granted ones, for when they are completed. Claims never
	// settled are dropped in time.
	claims *simplelru.LRU[storage.Lease, granted]
}

type granted struct {
	fingerprint storage.Fingerprint
	attempts    int
}

// maxClaims bounds the claims in progress known to the Window.
const maxClaims = 4096

// Layer puts the window in front of the store. A window may serve several.
func Layer(s storage.Store, w *Window, o LayerOptions) (*Layered, error) {
	switch {
	case usercode.IsNil(s):
		return nil, errors.New("put a window in front of a store: the store is missing")
	case w == nil:
		return nil, errors.New("put a window in front of a store: the window is missing")
	}
	if _, ok := s.(storage.Transactor); ok {
		return nil, errors.New("put a window in front of a store: behind one, handlers have no transaction")
	}
	if o.MaxResultBytes <= 0 {
		o.MaxResultBytes = defaultMaxResultBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	claims, err := simplelru.NewLRU[storage.Lease, granted](maxClaims, nil)
	if err != nil {
		panic(err) //nolint:forbidigo // only a size below 1 is refused
	}
	return &Layered{Store: s, window: w, options: o, claims: claims}, nil
}

// Claim implements storage.Store.
func (l *Layered) Claim(ctx context.Context, key storage.Key, req storage.ClaimRequest) (storage.Claim, error) {
	m := idempotency.Message{Key: key, Fingerprint: req.Fingerprint}
	hit, known := l.window.lookup(m)
	if hit == Exact && l.vouches(known) && req.Validate() == nil {
		return storage.Claim{
			Outcome: storage.Duplicate, Attempts: known.attempts,
			Result: slices.Clone(known.result), Layer: storage.LayerMemory,
		}, nil
	}
	if hit != Unknown {
		c, done, err := l.confirm(ctx, m, req)
		if done || err != nil {
			return c, err
		}
	}
	c, err := l.Store.Claim(ctx, key, req)
	if err != nil {
		return c, err
	}
	switch c.Outcome {
	case storage.Duplicate:
		l.window.Add(m)
	case storage.Claimed:
		l.mu.Lock()
		l.claims.Add(c.Lease, granted{fingerprint: req.Fingerprint, attempts: c.Attempts})
		l.mu.Unlock()
	}
	return c, nil
}

// confirm asks the store about a message completed according to memory.
func (l *Layered) confirm(ctx context.Context, m idempotency.Message, req storage.ClaimRequest) (c storage.Claim, done bool, err error) {
	if err := req.Validate(); err != nil {
		return c, true, err
	}
	r, err := l.Store.Inspect(ctx, m.Key)
	switch {
	case err != nil:
		return c, true, err
	case r.State != storage.Completed:
		l.window.Forget(m)
		return c, false, nil
	case r.Fingerprint.Conflicts(m.Fingerprint):
		return c, true, fmt.Errorf("claim %q: %w", m.Key, storage.ErrMismatch)
	}
	l.window.Add(m)
	return storage.Claim{
		Outcome: storage.Duplicate, Attempts: r.Attempts, Result: r.Result, Layer: storage.LayerStore,
	}, true, nil
}

// vouches reports whether memory alone may answer.
func (l *Layered) vouches(e entry) bool {
	return l.options.Trust && e.vouched && l.options.Now().Before(e.until)
}

// Complete implements storage.Store.
func (l *Layered) Complete(ctx context.Context, lease storage.Lease, result []byte, retention time.Duration) error {
	until := l.options.Now().Add(retention) // not later than the store forgets
	if err := l.Store.Complete(ctx, lease, result, retention); err != nil {
		return err
	}
	g, ok := l.take(lease)
	if !ok {
		return nil // repeated, or of a claim too long ago
	}
	e := entry{attempts: g.attempts}
	if len(result) <= l.options.MaxResultBytes {
		e.vouched, e.result, e.until = true, slices.Clone(result), until
	}
	l.window.add(idempotency.Message{Key: lease.Key, Fingerprint: g.fingerprint}, e)
	return nil
}

// Fail implements storage.Store.
func (l *Layered) Fail(ctx context.Context, lease storage.Lease, f storage.Failure) error {
	err := l.Store.Fail(ctx, lease, f)
	if err == nil {
		l.take(lease)
	}
	return err
}

// take returns the knowledge of a claim, once.
func (l *Layered) take(lease storage.Lease) (granted, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g, ok := l.claims.Peek(lease)
	l.claims.Remove(lease)
	return g, ok
}

// Maintain implements storage.Maintainer for the store behind.
func (l *Layered) Maintain(ctx context.Context, report func(error)) {
	if m, ok := l.Store.(storage.Maintainer); ok {
		m.Maintain(ctx, report)
	}
}

// Check implements storage.Checker for the store behind.
func (l *Layered) Check(ctx context.Context) ([]storage.Problem, error) {
	if c, ok := l.Store.(storage.Checker); ok {
		return c.Check(ctx)
	}
	return nil, nil
}
