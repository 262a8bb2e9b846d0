package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// RepairReport is an audit, and what was done about it.
type RepairReport struct {
	Audit
	// Published, DeadLettered and Skipped count events.
	Published    int64 `json:"published"`
	DeadLettered int64 `json:"dead_lettered"`
	Skipped      int64 `json:"skipped"`

	publish bool
}

// repair publishes what an audit finds missing.
type repair struct {
	*auditor
	began  []byte // the time, the value of the header cdc-repair
	report *RepairReport
}

// Repair compares the rows of the outbox with the records in Kafka, by event id,
// and reports the missing ones, or publishes them. It runs beside a connector: a
// row whose event may still be on its way does not count before the slot has
// confirmed it. The report beside an error says what was done until then.
func Repair(ctx context.Context, cfg *config.Config, opts AuditOptions, publish bool) (*RepairReport, error) {
	a, err := newAuditor(ctx, "repair", cfg, opts)
	if err != nil {
		return nil, err
	}
	defer a.close()
	r := &repair{auditor: a, began: time.Now().UTC().AppendFormat(nil, time.RFC3339), report: &RepairReport{publish: publish}}
	if publish {
		if err := r.alone(ctx); err != nil {
			return nil, err
		}
		a.settle = r.fence
	}
	if err := a.compare(ctx); err != nil {
		return nil, err
	}
	r.report.Audit = *a.result
	if publish {
		err = r.write(ctx)
	}
	return r.report, err
}

// alone refuses a second one that publishes: both would publish the same.
func (r *repair) alone(ctx context.Context) error {
	var alone bool
	err := r.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtext('cdc-outbox repair'), hashtext($1))`, r.cfg.Source.Slot).Scan(&alone)
	switch {
	case err != nil:
		return fmt.Errorf("lock out a second repair: %w", err)
	case !alone:
		return failure.Configf("wait for its end, or end it: SELECT pid, usename, client_addr FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory';",
			"another repair --publish of slot %q is at work", r.cfg.Source.Slot)
	}
	return nil
}

// fence ends what an instance that lost its slot may still have on its way: with
// exactly_once it cannot commit a transaction any more.
func (r *repair) fence(ctx context.Context) error {
	if !wiring.ExactlyOnce(r.cfg) {
		return nil
	}
	id, err := wiring.TransactionalID(r.cfg)
	if err != nil {
		return err
	}
	out, err := sink.NewTransactions(*r.cfg.Sink.Kafka, id)
	if err != nil {
		return err
	}
	defer out.Close()
	return out.Claim(ctx)
}
