package sink

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
)

const (
	// refusals is the number of refusals by a broker in a row that count as
	// final. Once is not enough: a starting broker may not know its users yet.
	refusals = 3
	// reportEvery is the time between two log lines about trouble without a visible end.
	reportEvery = 30 * time.Second
	// outageForgotten is the time from an address's last failure until it is forgotten: the
	// cluster has no broker there any more, or no request goes there.
	outageForgotten = time.Hour
)

// connections watches the attempts to connect to brokers. The client would retry for ever,
// even with a wrong password; connections ends the attempts. It is a kgo.HookBrokerConnect,
// HookBrokerRead and HookBrokerThrottle, called from several goroutines.
type connections struct {
	cfg      Options
	log      *zap.Logger
	observer Observer
	lease    *lease.Lease // see WithLease

	// final ends at a final refusal, with the reason as the cause.
	final  context.Context
	refuse context.CancelCauseFunc

	mu      sync.Mutex
	brokers map[int32]*trouble // by node id, after a failed attempt
	outages map[string]*outage // by address
	cut     map[int32]bool     // by node id: hung up during the login

	throttled time.Time  // of the last log line
	waits     []throttle // the last throttlesKept
}

// trouble is a series of failed attempts to connect to one broker.
type trouble struct{ refusals int }

// outage is the outage of an address.
type outage struct {
	*digest.Outage
	last time.Time // failure
}

func newConnections(cfg Options, log *zap.Logger, observer Observer) *connections {
	c := &connections{cfg: cfg, log: log, observer: observer, brokers: make(map[int32]*trouble), outages: make(map[string]*outage), cut: make(map[int32]bool)}
	c.final, c.refuse = context.WithCancelCause(context.Background())
	return c
}

// guard returns a context that also ends at a final refusal, with the reason as
// the cause. release must be called.
func (c *connections) guard(parent context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(parent)
	unhook := context.AfterFunc(c.final, func() { cancel(context.Cause(c.final)) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (c *connections) OnBrokerConnect(broker kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) || err != nil && !c.lease.Held() {
		return
	}
	addr := net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut[broker.NodeID] && err != nil {
		err = &loginCut{err}
	}
	delete(c.cut, broker.NodeID)
	t := c.brokers[broker.NodeID]
	if t != nil {
		c.observer.Reconnect()
	}
	if err == nil {
		delete(c.brokers, broker.NodeID)
		if o := c.outages[addr]; o != nil {
			delete(c.outages, addr)
			o.Over()
		}
		return
	}
	if t == nil {
		t = &trouble{}
		c.brokers[broker.NodeID] = t
	}
	c.failed(t, addr, err)
}

// OnBrokerRead implements kgo.HookBrokerRead. Kafka answers a wrong password,
// but some programs of the same protocol only hang up.
func (c *connections) OnBrokerRead(broker kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err == nil && kmsg.Key(key) == kmsg.Produce {
		c.observer.Answered()
	}
	if kmsg.Key(key) == kmsg.SASLAuthenticate && errors.Is(err, io.EOF) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cut[broker.NodeID] = true
	}
}

// OnBrokerThrottle implements kgo.HookBrokerThrottle.
func (c *connections) OnBrokerThrottle(broker kgo.BrokerMetadata, wait time.Duration, _ bool) {
	c.observer.Throttled(wait)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits = append(c.waits, throttle{time.Now(), wait}); len(c.waits) > throttlesKept {
		c.waits = c.waits[1:]
	}
	if now := time.Now(); now.Sub(c.throttled) >= reportEvery {
		c.throttled = now
		c.log.Warn("Kafka throttles the connector: a quota is used up", zap.Int32("broker", broker.NodeID), zap.Duration("wait", wait),
			zap.String("remedy", c.cfg.Tools().RaiseQuota()))
	}
}

// throttle is a wait for a quota.
type throttle struct {
	at   time.Time
	wait time.Duration
}

// throttlesKept bounds the remembered throttles: a transaction has time for a few.
const throttlesKept = 16

// throttledSince is the least time since then that the client has waited for quotas.
func (c *connections) throttledSince(then time.Time) (sum time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.waits {
		if t.at.After(then) {
			sum += t.wait
		}
	}
	return sum
}

// loginCut is the error of a connection ended by the broker during the login.
type loginCut struct{ err error }

// Error implements error.
func (e *loginCut) Error() string { return "the broker hung up during the login: " + e.err.Error() }

// Unwrap returns the connection's error.
func (e *loginCut) Unwrap() error { return e.err }

// failed counts and reports a failed attempt.
func (c *connections) failed(t *trouble, addr string, err error) {
	remedy, ok := refused(c.cfg, err)
	if !ok || c.cfg.renews(err) {
		t.refusals = 0
	} else if t.refusals++; t.refusals == refusals {
		c.refuse(failure.Configf(remedy, "connect to Kafka broker %s: %w", addr, err))
		return
	}
	now := time.Now()
	maps.DeleteFunc(c.outages, func(_ string, o *outage) bool { return now.Sub(o.last) > outageForgotten })
	o := c.outages[addr]
	if o == nil {
		o = &outage{Outage: digest.NewOutage(c.log.With(zap.String("broker", addr)), "connected to Kafka broker again")}
		c.outages[addr] = o
	}
	o.last = now
	o.Failed("cannot connect to Kafka broker, retrying", &failure.Error{Remedy: cmp.Or(remedy, failure.RemedyOf(err), absenceRemedy(c.cfg, err)), Err: err})
}
