package pipeline

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// openValues makes the keeper of large values, and waits until the claim store answers, or ctx
// ends.
func (p *pipeline) openValues(ctx context.Context) (err error) {
	if p.values, err = wiring.Values(p.cfg, p.metrics); p.values == nil || err != nil {
		return err
	}
	return p.awaitSide(ctx, "claims", "the claim store", p.values.Reach, func(err error) bool { return failure.ClassOf(err) != failure.Transient })
}

// valuesPace is how often the claim store is asked, and sweepPace how often old values go.
const (
	valuesPace = 5 * time.Second
	sweepPace  = time.Minute
)

// watchValues asks the claim store, also while no value is kept, and deletes old values, until
// the returned function is called, which joins the goroutines. They outlive ctx: a pipeline that
// drains keeps values.
func (p *pipeline) watchValues(ctx context.Context, tell func(error)) (stop func()) {
	if p.values == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	parked := p.newParkedValues()
	var watching sync.WaitGroup
	watching.Go(func() { parked.watch(ctx) })
	watching.Go(func() {
		outage := digest.NewOutage(p.log, "the claim store answers again")
		sweeps := digest.NewOutage(p.log, "old values are deleted again")
		for swept := time.Now(); backoff.Sleep(ctx, valuesPace) == nil; {
			err := p.values.Reach(ctx)
			if ctx.Err() != nil {
				return
			}
			tell(err)
			if err != nil {
				outage.Failed("the claim store does not answer; events with large values wait", err)
				continue
			}
			outage.Over()
			if time.Since(swept) >= sweepPace && parked.safe() {
				swept = time.Now()
				p.sweepValues(ctx, sweeps)
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// sweepValues deletes the values beyond claim_check.retention.
func (p *pipeline) sweepValues(ctx context.Context, outage *digest.Outage) {
	all := 0
	for more := true; more; {
		var deleted int
		var err error
		if deleted, more, err = p.values.Sweep(ctx); err != nil {
			if ctx.Err() == nil {
				outage.Failed("old values cannot be deleted from the claim store", err)
			}
			return
		}
		all += deleted
	}
	outage.Over()
	if all > 0 {
		p.log.Info("values beyond claim_check.retention are deleted from the claim store", zap.Int("values", all))
	}
}
