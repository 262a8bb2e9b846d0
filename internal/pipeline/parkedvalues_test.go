package pipeline

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/claimcheck"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// An event may be parked for longer than the claim store keeps values: its value is renewed
// meanwhile, and no old value is deleted before. A lost value is told (failure mode 222).
func TestValuesOfParkedEventsStay(t *testing.T) {
	cfg, _, db := inMode(t, "parked_values", config.ModeWAL)
	cfg.Errors.OnBadEvent = transform.BadEventQuarantine
	cfg.ClaimCheck.Store, cfg.ClaimCheck.Above, cfg.ClaimCheck.Retention = claimcheck.StoreTable, 2<<10, time.Hour
	pgtest.Exec(t, db, claimcheck.TableSQL(must.Get(pg.ParseTable(cfg.ClaimCheck.Table.Name))(t))...)
	conn := must.Get(pgx.Connect(t.Context(), db))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })

	r := start(t, cfg)
	await.Until(t, "readiness", r.ready)
	pgtest.Exec(t, db, `INSERT INTO outbox (aggregate_type, event_type, payload) VALUES ('order', 'Placed', jsonb_build_object('x', repeat('x', 5000)))`)
	pgtest.Await(t, conn, `SELECT count(*) = 1 FROM cdc_outbox_claims`)
	await.Until(t, "the parked event", r.shows(`cdc_outbox_quarantine_events 1`))
	must.OK(t, r.stop())

	pgtest.Exec(t, db, `UPDATE cdc_outbox_claims SET stored = now() - interval '2 hours'`)
	r = start(t, cfg)
	pgtest.Await(t, conn, `SELECT stored > now() - interval '1 hour' FROM cdc_outbox_claims`)
	must.OK(t, r.stop())

	pgtest.Exec(t, db, `DELETE FROM cdc_outbox_claims`)
	r = start(t, cfg)
	await.Until(t, "word of the lost value", func() bool {
		found := r.logs.FilterMessage("a parked event has lost its value").All()
		return len(found) > 0 && strings.Contains(found[0].ContextMap()["remedy"].(string), "quarantine edit")
	})
	must.OK(t, r.stop())
}

// Without word from the quarantine, no value is deleted.
func TestNoSweepBesideUnknownParkedEvents(t *testing.T) {
	p := &pipeline{cfg: new(config.Config)}
	if v := p.newParkedValues(); !v.safe() {
		t.Error("without a quarantine, nothing is deleted")
	}
	p.cfg.Errors.OnBadEvent, p.cfg.ClaimCheck.Retention = transform.BadEventQuarantine, time.Hour
	v := p.newParkedValues()
	if v.safe() || v.every != 15*time.Minute {
		t.Errorf("values are renewed every %s; safe before the first time: %v", v.every, v.safe())
	}
	if v.until.Store(time.Now().Add(v.every).UnixNano()); !v.safe() {
		t.Error("values were renewed, and nothing is deleted")
	}
}
