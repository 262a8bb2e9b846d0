package sink

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// A cluster that is silent shows within probeEvery + probeTimeout + silentAfter
// at the latest. One question that is not answered, on a busy machine, shows
// nothing.
const (
	probeEvery   = 2 * time.Second
	probeTimeout = 3 * time.Second
	silentAfter  = 8 * time.Second
	// refusedEvery is in place of probeEvery after a refused login: each may
	// count towards the lock of an account.
	refusedEvery = 6 * time.Second
)

// Probe asks the cluster now and then whether it is there, which a sink without
// events would not notice. It has a client of its own, so that it gets in no
// delivery's way: one connection to a broker for good, and a few for some minutes
// after a broker did not answer.
type Probe struct {
	ask   func(context.Context) error
	close func()
	begun time.Time
	// heard is when a broker last answered, in nanoseconds since begun; 0 for
	// never. The wall clock may jump.
	heard atomic.Int64
}

func newProbe(ask func(context.Context) error, end func()) *Probe {
	return &Probe{ask: ask, close: end, begun: time.Now()}
}

// NewProbe returns a probe of the cluster that cfg describes; cfg must have
// passed validation. It opens no connection.
func NewProbe(cfg Options) (*Probe, error) {
	cluster, err := newAsker(cfg)
	if err != nil {
		return nil, err
	}
	return newProbe(cluster.ask, cluster.client.Close), nil
}

// Answered tells the probe that a broker has answered another client: where
// events get through, no question that is lost means an outage. It may be called
// from several goroutines and does not block.
func (p *Probe) Answered() { p.heard.Store(max(1, int64(time.Since(p.begun)))) }

// errProbeTimeout is the cause of the end of a question without an answer.
var errProbeTimeout = errors.New("no broker answered within " + probeTimeout.String())

// Close gives the client up, after Run has returned. A nil Probe may be closed.
func (p *Probe) Close() {
	if p != nil {
		p.close()
	}
}

// Run asks until ctx ends. After each question it
// calls report, with nil while brokers answer, and with the reason and, where
// there is one, a remedy once none has for silentAfter; in between it is
// not called. Run it once.
func (p *Probe) Run(ctx context.Context, report func(error)) {
	for {
		err := p.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			p.Answered()
		}
		refused := failure.ClassOf(err) == failure.Config
		heard := p.heard.Load()
		switch silent := time.Since(p.begun) - time.Duration(heard); {
		case silent >= silentAfter:
			what := "no broker has answered for"
			if refused {
				what = "brokers have refused the connector for"
			}
			report(fmt.Errorf("%s %s: %w", what, silent.Round(time.Second), err))
		case heard != 0:
			report(nil)
		}
		wait := probeEvery
		if refused {
			wait = refusedEvery
		}
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
	}
}

func (p *Probe) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, errProbeTimeout)
	defer cancel()
	return p.ask(ctx)
}
