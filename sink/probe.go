package sink

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Pace is how often a Probe asks. A cluster that is silent shows within the sum of
// Every, Timeout and Silence at the latest. One question that is not answered, on
// a busy machine, shows nothing.
type Pace struct {
	Every, Timeout, Silence time.Duration
	// Refused is in place of Every after a refused login: each may count towards
	// the lock of an account.
	Refused time.Duration
}

// UsualPace is the pace outside tests.
var UsualPace = Pace{Every: 2 * time.Second, Timeout: 3 * time.Second, Silence: 8 * time.Second, Refused: 6 * time.Second}

// Probe asks the cluster now and then whether it is there, which a sink without
// events would not notice. It has a client of its own, so that it gets in no
// delivery's way: one connection to a broker for good, and a few for some minutes
// after a broker did not answer.
type Probe struct {
	ask   func(context.Context) error
	close func()
	pace  Pace
	begun time.Time
	// heard is when a broker last answered, in nanoseconds since begun; 0 for
	// never. The wall clock may jump.
	heard atomic.Int64
}

func newProbe(ask func(context.Context) error, end func(), pace Pace) *Probe {
	return &Probe{ask: ask, close: end, pace: pace, begun: time.Now()}
}

// NewProbe returns a probe of the cluster that cfg describes; cfg must have
// passed validation. It opens no connection.
func NewProbe(cfg Options, pace Pace) (*Probe, error) {
	cluster, err := newAsker(cfg)
	if err != nil {
		return nil, err
	}
	return newProbe(cluster.ask, cluster.client.Close, pace), nil
}

// Answered tells the probe that a broker has answered another client: where
// events get through, no question that is lost means an outage. It may be called
// from several goroutines and does not block.
func (p *Probe) Answered() { p.heard.Store(max(1, int64(time.Since(p.begun)))) }

// Close gives the client up, after Run has returned. A nil Probe may be closed.
func (p *Probe) Close() {
	if p != nil {
		p.close()
	}
}

// Run asks until ctx ends. After each question it
// calls report, with nil while brokers answer, and with the reason and, where
// there is one, a remedy once none has for Pace.Silence; in between it is
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
		case silent >= p.pace.Silence:
			what := "no broker has answered for"
			if refused {
				what = "brokers have refused the connector for"
			}
			report(fmt.Errorf("%s %s: %w", what, silent.Round(time.Second), err))
		case heard != 0:
			report(nil)
		}
		wait := p.pace.Every
		if refused {
			wait = p.pace.Refused
		}
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
	}
}

func (p *Probe) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.pace.Timeout, fmt.Errorf("no broker answered within %s", p.pace.Timeout))
	defer cancel()
	return p.ask(ctx)
}
