package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// The defaults of Options.
const (
	defaultLease       = 30 * time.Second
	defaultRetention   = 7 * 24 * time.Hour
	defaultMaxAttempts = 12
	defaultMaxVanished = 10
	defaultFirstRetry  = time.Second
	defaultLastRetry   = time.Minute
)

// Options of a Processor.
type Options struct {
	// Store is required.
	Store storage.Store
	// Lease is how long a claim excludes others; the Processor extends it while
	// the handler runs. After it another process can take over from one that
	// died. 30 s if 0; 10 s with a Transactor, whose transaction keeps
	// others away instead.
	Lease time.Duration
	// Heartbeat is how often the lease is extended; a third of Lease if 0.
	Heartbeat time.Duration
	// Margin is how long before the lease may be lost the handler's context ends;
	// a tenth of Lease if 0. The handler must stop within Margin.
	Margin time.Duration
	// Timeout bounds the asking of the store: how long a claim or a settlement is
	// repeated before the store counts as unavailable, how long Run waits for a
	// Transactor's connection, and how long it may outlive its context. A third
	// of Lease if 0, 10 s with a Transactor.
	Timeout time.Duration
	// HandlerTimeout bounds a call of the handler: then the context ends, and if
	// the handler returns an error, the attempt has failed. No bound if 0. A
	// handler going on all the same keeps the lease, and is told of by
	// Observer.HandlerStuck. With postgres.Transactional it must not be longer
	// than the IdleTimeout.
	HandlerTimeout time.Duration
	// Retention is how long a settled key is kept. It must be longer than the
	// time within which a message can be delivered again: the topic's retention,
	// if its offsets may be reset. A week if 0.
	Retention time.Duration
	// MaxAttempts is the number of failures before a message is given up; 12 if 0,
	// no bound if negative.
	MaxAttempts int
	// MaxVanished is how many attempts at a message may end without an outcome,
	// because their process died, before it is given up; 10 if 0, no bound if
	// negative, or if MaxAttempts is.
	MaxVanished int
	// FirstRetry is the wait after the first failed attempt; it doubles up to
	// LastRetry and is drawn from the upper half. A second and a minute if 0.
	// With the defaults a message is given up after three to six minutes.
	FirstRetry, LastRetry time.Duration
	// DeadLetter makes a message that is given up durable elsewhere. It returns
	// nil once the message is durable, and may be called again for a message
	// that could not be settled afterwards. Required unless MaxAttempts is
	// negative: without it nothing is given up, a terminal error is retried
	// like any other, and a message that contradicts its key, or has a bad one,
	// is not done either.
	DeadLetter func(ctx context.Context, d DeadLetter) error
	// Compensate is called when the lease was lost while, or after, the handler
	// ran. Optional. ctx does not end with Run's, but after Timeout. Not with a
	// Transactor: the handler's writes are rolled back then.
	Compensate func(ctx context.Context, l Loss)
	// FailOpen says what to do when a claim cannot be asked for. By default the
	// message is left for later: Result.Disposition is Unavailable. With FailOpen
	// the handler runs without a claim: there is no lease in the context, no
	// heartbeat and no count of attempts, and the message may be handled twice,
	// also at the same time. A claimed message that cannot be settled counts as
	// handled. Calls of the store are made once, and for a quarter of a second at
	// most; after three keys without an answer none is made, except in the
	// background, until the store answers again. So a message waits for a silent
	// store for 40 ms at most, after the first second; a client of Redis needs
	// ContextTimeoutEnabled.
	FailOpen bool
	// Shadow is for a trial beside what there is already. Each message is claimed
	// and settled, and Observer.Shadow told what would become of it; but the
	// handler runs whatever that is, and neither waits for the store (FailOpen)
	// nor ends with the lease. Nothing is given up: DeadLetter and Compensate are
	// not called, nor are the Observer's LeaseLost, FailOpen and HandlerStuck. The
	// keys completed meanwhile are known when Shadow is taken away; what failed,
	// or died, starts anew. Not with a Transactor.
	Shadow bool
	// Observer is told of the Processor's work.
	Observer Observer
}

// Defaults for a Transactor: the transaction keeps others away, also while it
// is completed, so the lease only says how long a message waits after a crash.
const (
	transactionLease   = 10 * time.Second
	transactionTimeout = 10 * time.Second
)

func (o Options) withDefaults() Options {
	if o.Shadow {
		o.FailOpen, o.MaxAttempts, o.DeadLetter, o.Compensate = true, -1, nil, nil
		// A trial handles nothing twice.
		o.Observer.LeaseLost, o.Observer.FailOpen, o.Observer.HandlerStuck = nil, nil, nil
	}
	if o.transactional() {
		o.Lease = cmp.Or(o.Lease, transactionLease)
		o.Timeout = cmp.Or(o.Timeout, transactionTimeout)
	}
	o.Lease = cmp.Or(o.Lease, defaultLease)
	o.Heartbeat = cmp.Or(o.Heartbeat, o.Lease/3)
	o.Margin = cmp.Or(o.Margin, o.Lease/10)
	o.Timeout = cmp.Or(o.Timeout, o.Lease/3)
	o.Retention = cmp.Or(o.Retention, defaultRetention)
	o.FirstRetry = cmp.Or(o.FirstRetry, defaultFirstRetry)
	o.LastRetry = cmp.Or(o.LastRetry, max(defaultLastRetry, o.FirstRetry))
	o.MaxAttempts = cmp.Or(o.MaxAttempts, defaultMaxAttempts)
	o.MaxVanished = cmp.Or(o.MaxVanished, defaultMaxVanished)
	return o
}

func (o Options) transactional() bool {
	_, ok := o.Store.(storage.Transactor)
	return ok
}

// idleTimeout is the store's limit for a transaction's wait for a handler, 0 if
// unknown.
func (o Options) idleTimeout() time.Duration {
	if s, ok := o.Store.(interface{ IdleTimeout() time.Duration }); ok {
		return s.IdleTimeout()
	}
	return 0
}

// validate names each fault.
func (o Options) validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"Lease", o.Lease}, {"Heartbeat", o.Heartbeat}, {"Margin", o.Margin}, {"Timeout", o.Timeout},
		{"Retention", o.Retention}, {"FirstRetry", o.FirstRetry}, {"LastRetry", o.LastRetry},
	} {
		if d.value < time.Millisecond {
			return fmt.Errorf("%s is %s: it must be at least a millisecond", d.name, d.value)
		}
	}
	switch {
	case o.HandlerTimeout < 0:
		return fmt.Errorf("HandlerTimeout, %s, is negative", o.HandlerTimeout)
	case usercode.IsNil(o.Store):
		return errors.New("Store is missing")
	case o.Heartbeat+o.Margin >= o.Lease:
		return fmt.Errorf("Heartbeat, %s, and Margin, %s, leave no time within Lease, %s", o.Heartbeat, o.Margin, o.Lease)
	case o.transactional() && o.FailOpen:
		return errors.New("FailOpen and Shadow cannot be: without the store there is no transaction for the handler")
	case o.transactional() && o.Compensate != nil:
		return errors.New("Compensate cannot be: when the lease is lost, what the handler wrote in its transaction is rolled back; Observer.LeaseLost tells of it")
	case o.Timeout+o.Margin >= o.Lease && !o.transactional():
		return fmt.Errorf("Timeout, %s, and Margin, %s, leave no time within Lease, %s", o.Timeout, o.Margin, o.Lease)
	case o.HandlerTimeout > o.idleTimeout() && o.idleTimeout() > 0:
		return fmt.Errorf("HandlerTimeout, %s, is longer than the store's IdleTimeout, %s, after which the server ends a transaction that waits for its handler: "+
			"make IdleTimeout as long", o.HandlerTimeout, o.idleTimeout())
	case o.Retention < o.Lease:
		return fmt.Errorf("Retention, %s, is shorter than Lease, %s", o.Retention, o.Lease)
	case o.LastRetry < o.FirstRetry:
		return fmt.Errorf("LastRetry, %s, is shorter than FirstRetry, %s", o.LastRetry, o.FirstRetry)
	case o.Retention <= o.LastRetry:
		return fmt.Errorf("Retention, %s, forgets a message before its retry, after LastRetry, %s", o.Retention, o.LastRetry)
	case o.DeadLetter == nil && o.MaxAttempts > 0:
		return errors.New("DeadLetter is missing: give one, or a negative MaxAttempts to give up no message")
	}
	return nil
}

// exhausted returns an error wrapping ErrExhausted if the message has reached
// the limit of failed or vanished attempts.
func (o Options) exhausted(c storage.Claim) error {
	switch {
	case o.MaxAttempts <= 0:
		return nil
	case c.Failures() >= o.MaxAttempts:
		return fmt.Errorf("%w: %d attempts failed, the last one with: %q", storage.ErrExhausted, c.Failures(), c.Reason)
	case o.MaxVanished > 0 && c.Vanished >= o.MaxVanished:
		return fmt.Errorf("%w: %d attempts vanished: their processes died, or were paused beyond the lease", storage.ErrExhausted, c.Vanished)
	}
	return nil
}

func (o Options) retryAfter(attempt int) time.Duration {
	return backoff.Range{First: o.FirstRetry, Longest: o.LastRetry}.Wait(max(attempt, 1))
}
