package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// compares reports whether rows from before the slot are in question.
func (f *finish) compares() bool {
	if f.r.Slot == slotKept {
		return f.early > 0 && f.cfg.Sink.Kafka != nil
	}
	return f.r.NotCompared == ""
}

// foresee compares without publishing.
func (f *finish) foresee(ctx context.Context) error {
	if !f.compares() {
		return nil
	}
	held, err := catalog.HoldSnapshot(ctx, f.cfg.Source.URL.Reveal(), "")
	if err != nil {
		return err
	}
	defer held.Release()
	return f.repair(ctx, held.Name, false)
}

// repair finds the events missing as of a snapshot, and publishes them, if asked for.
// Of a proven server, all rows from before the marker are published, or never were to
// be.
func (f *finish) repair(ctx context.Context, snapshot string, publish bool) error {
	opts := f.opts
	if f.r.Proven {
		opts.marked = &marked{rows: f.stored.Upgrade.Marker.Rows(f.before()), at: f.stored.Upgrade.At}
	}
	a, err := newAuditor(ctx, catalog.RepairVerb, f.cfg, opts)
	if err != nil {
		return err
	}
	defer a.close()
	a.behind = snapshot
	r := &repair{
		auditor: a, header: transform.HeaderRepair, mark: time.Now().UTC().AppendFormat(nil, time.RFC3339), flag: "--yes", refuse: func(found *Audit) error {
			return f.refuse(found, a)
		},
	}
	if publish {
		a.settle = func(ctx context.Context) error { return fence(ctx, f.cfg, "") }
		if r.parks, err = openParks(ctx, f.cfg, f.stored.Settled, func() { r.report.Parked++ }); err != nil {
			return err
		}
	}
	if f.r.Repair, err = r.run(ctx, publish); err != nil {
		return fmt.Errorf("not finished: %w", err)
	}
	return nil
}

// before is the first transaction of a kept slot; 0: there is no kept slot.
func (f *finish) before() uint32 {
	if f.r.Slot == slotKept {
		return f.Slot.CatalogXmin
	}
	return 0
}

// refuse returns why missing events are not to be published, or may be missing without
// being found.
func (f *finish) refuse(found *Audit, a *auditor) error {
	unknown := found.Unknown
	if f.cfg.Errors.OnBadEvent == transform.BadEventSkip {
		unknown -= a.rows.Unrouted
	}
	switch {
	case !f.r.Proven && found.Found == 0 && found.Missing > 0:
		return failure.Configf("correct source.url; if this is the copy all the same: `cdc-outbox setup --accept-gap --yes`, start the connector, and beside it: `cdc-outbox repair --publish`",
			"none of the %d rows is in Kafka: nothing shows that this server is a copy of the prepared one", found.Rows)
	case f.r.Proven && unknown > 0:
		return failure.Lossf("find out in the application's own data whether they are published; then "+catalog.AcceptGap,
			"%d rows of transactions that may have ended after the marker may be missing: %s", unknown, strings.Join(found.Limits, "; "))
	}
	return nil
}

// openParks reads the parked events, but for those settled by the checkpoint, to park the
// later events of their keys; nil: bad events are not parked. No connector may be at work.
func openParks(ctx context.Context, cfg *config.Config, settled []uint64, parked func()) (*delivery.Quarantine, error) {
	if cfg.Errors.OnBadEvent != transform.BadEventQuarantine {
		return nil, nil
	}
	log, err := wiring.OpenQuarantine(cfg)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := wiring.EnsureQuarantine(ctx, cfg, log); err != nil {
		return nil, err
	}
	loaded, err := log.Load(ctx, cfg.Errors.QuarantineLimit, wiring.Rules(cfg), nil)
	if err != nil {
		return nil, err
	}
	loaded.Set.Settle(settled)
	parks := &delivery.Quarantine{Parked: func(transform.Reason) { parked() }, Largest: sink.LargestParked(*cfg.Sink.Kafka)}
	parks.Use(loaded.Set)
	return parks, nil
}
