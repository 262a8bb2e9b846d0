package pipeline

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/quarantine"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// parkedValues renews the large values of parked events, which may be parked for longer than the
// claim store keeps a value.
type parkedValues struct {
	p     *pipeline
	every time.Duration
	until atomic.Int64 // no value of a parked event is too old before this time, in ns since 1970
}

// renewPace is how often values in a store without a known retention are renewed. The shortest
// rule of a bucket is a day.
const renewPace = 8 * time.Hour

// newParkedValues returns nil where no event is parked.
func (p *pipeline) newParkedValues() *parkedValues {
	if p.cfg.Errors.OnBadEvent != transform.BadEventQuarantine {
		return nil
	}
	v := &parkedValues{p: p, every: renewPace}
	if kept := p.cfg.ClaimCheck.Retention; kept > 0 {
		v.every = min(v.every, kept/4)
	}
	return v
}

// safe reports whether old values may be deleted: those of parked events were renewed.
func (v *parkedValues) safe() bool { return v == nil || time.Now().UnixNano() < v.until.Load() }

// watch renews the values until ctx ends.
func (v *parkedValues) watch(ctx context.Context) {
	if v == nil {
		return
	}
	outage := digest.NewOutage(v.p.log, "the values of parked events are renewed again")
	for {
		began, wait := time.Now(), v.every
		err := v.renew(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			outage.Failed("the values of parked events cannot be renewed in the claim store, and no old value is deleted meanwhile", err)
			wait = valuesPace
		default:
			outage.Over()
			v.until.Store(began.Add(2 * v.every).UnixNano())
		}
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// renew renews the values of all parked events.
func (v *parkedValues) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, v.every)
	defer cancel()
	log, err := wiring.OpenQuarantine(v.p.cfg)
	if err != nil {
		return err
	}
	defer log.Close()
	now, err := log.Read(ctx, quarantine.None)
	if err != nil || len(now.Entries) == 0 {
		return err
	}
	parked := make(map[uint64]bool, len(now.Entries))
	for _, e := range now.Entries {
		parked[e.Number] = true
	}
	_, _, err = log.Walk(ctx, func(rec *kgo.Record) (bool, error) {
		e, ok := quarantine.ReadEntry(rec)
		if !ok || !parked[e.Number] {
			return true, nil
		}
		ev := e.Event()
		if transform.StoredSize(&ev.Record) == 0 {
			return true, nil
		}
		err := v.p.values.Renew(ctx, ev)
		if bad, gone := errors.AsType[*transform.BadEvent](err); gone {
			v.p.log.Error("a parked event has lost its value", zap.Uint64("number", e.Number), zap.String("event_id", ev.Name()), zap.Error(bad),
				zap.String("remedy", "give the event its value with `cdc-outbox quarantine edit`, or leave it out with skip"))
			return true, nil
		}
		return err == nil, err
	})
	return err
}
