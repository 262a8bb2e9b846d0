package sink

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// A cluster that is silent shows within probeEvery + probeTimeout + silentAfter
// at the latest. One question that is not answered, on a busy machine or by one
// of several brokers, shows nothing.
const (
	probeEvery   = 2 * time.Second
	probeTimeout = 3 * time.Second
	silentAfter  = 8 * time.Second
	// probeRetries bounds the brokers that one question goes to.
	probeRetries = 4
)

// Probe asks the cluster now and then whether it is there, which a sink without
// events would not notice. It has a client of its own, so that it gets in no
// delivery's way: one connection to a broker, two at the most while brokers
// change.
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
	opts, err := ClientOpts(cfg)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(opts, kgo.RequestRetries(probeRetries))...)
	if err != nil {
		return nil, failure.Configf("correct sink.kafka", "set up the Kafka client: %w", err)
	}
	ask := func(ctx context.Context) error {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{} // none: nil would be all
		resp, err := req.RequestWith(ctx, impatient{client})
		switch {
		case err != nil:
			return Unreachable(cfg, err)
		case kerr.ErrorForCode(resp.ErrorCode) != nil:
			return kerr.ErrorForCode(resp.ErrorCode)
		case len(resp.Brokers) == 0:
			return errors.New("the cluster has no broker")
		}
		return nil
	}
	return newProbe(ask, client.Close), nil
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
		heard := p.heard.Load()
		switch silent := time.Since(p.begun) - time.Duration(heard); {
		case silent >= silentAfter:
			report(fmt.Errorf("no broker has answered for %s: %w", silent.Round(time.Second), err))
		case heard != 0:
			report(nil)
		}
		if backoff.Sleep(ctx, probeEvery) != nil {
			return
		}
	}
}

func (p *Probe) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, errProbeTimeout)
	defer cancel()
	return p.ask(ctx)
}
