package admin

import (
	"context"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// RepairReport is an audit with the repair after it.
type RepairReport struct {
	Audit
	// Published, DeadLettered and Skipped count events.
	Published    int64 `json:"published"`
	DeadLettered int64 `json:"dead_lettered"`
	Skipped      int64 `json:"skipped"`
	// Parked counts events put into the quarantine: bad ones, and those behind them.
	Parked int64 `json:"parked,omitempty"`
	// Gap is what became of an accepted gap; nil: the checkpoint has none.
	Gap *MendedGap `json:"accepted_gap,omitempty"`

	publish bool
	flag    string // has the command publish; "": --publish
}

// repair publishes the missing events of an audit.
type repair struct {
	*auditor
	header string
	mark   []byte // the value of the header
	// rate is how many events a second are published at most; 0: as many as go.
	rate   int
	flag   string // RepairReport.flag
	out    *writer
	report *RepairReport
	// refuse returns the reason for publishing nothing, after the comparison; nil: there
	// is none.
	refuse func(*Audit) error
	// parks has bad events parked, while no connector does; nil: none are.
	parks *delivery.Quarantine
}

// Repair compares the rows of the outbox with the records in Kafka, by event id,
// and reports the missing ones, or publishes them. It runs beside a connector: a
// row whose event may still be on its way does not count before the slot has
// confirmed it. With all published, an accepted gap is closed. The report beside an error says what was done until then.
func Repair(ctx context.Context, cfg *config.Config, opts AuditOptions, publish bool) (*RepairReport, error) {
	a, err := newAuditor(ctx, "repair", cfg, opts)
	if err != nil {
		return nil, err
	}
	defer a.close()
	r := &repair{auditor: a, header: transform.HeaderRepair, mark: time.Now().UTC().AppendFormat(nil, time.RFC3339)}
	if publish {
		a.settle = func(ctx context.Context) error { return fence(ctx, cfg, "") }
	}
	var gap *checkpoint.AcceptedGap
	if !a.polls() { // before the rows are looked at
		if gap, err = a.acceptedGap(ctx); err != nil {
			a.note("it is not known whether an accepted gap is noted in the checkpoint, and it stays there: " + err.Error())
		}
	}
	report, err := r.run(ctx, publish)
	if err != nil {
		return report, err
	}
	return report, r.close(ctx, gap, publish)
}

// run compares, and publishes or not.
func (r *repair) run(ctx context.Context, publish bool) (_ *RepairReport, err error) {
	defer func() { err = interrupted(err) }()
	r.report = &RepairReport{publish: publish, flag: r.flag}
	if publish {
		if err := r.alone(ctx, r.verb); err != nil {
			return nil, err
		}
		// An earlier command may live on without its lock, and ends here.
		r.out, err = openWriter(ctx, r.cfg, writerOptions{
			plain: true, suffix: "/" + r.verb, policy: r.cfg.Errors.OnBadEvent, metrics: repaired{RepairReport: r.report}, rate: r.rate, within: r.opts.Timeout, note: r.note, parks: r.parks,
		})
		if err != nil {
			return nil, err
		}
		defer r.out.close()
	}
	if err := r.compare(ctx); err != nil {
		return nil, err
	}
	r.report.Audit = *r.result
	if r.refuse != nil {
		if err := r.refuse(r.result); err != nil {
			return r.report, err
		}
	}
	if !publish {
		return r.report, nil
	}
	return r.report, r.write(ctx)
}

// alone refuses a second repair with --publish: both would publish the same.
func (s *session) alone(ctx context.Context, verb string) error {
	for until := time.Now().Add(lockPatience); ; {
		alone, err := catalog.LockVerb(ctx, s.conn, verb, s.cfg.Source.Slot)
		switch {
		case err != nil:
			return err
		case alone:
			return nil
		case time.Now().After(until):
			return failure.Configf("wait for its end, or end it: SELECT pid, usename, client_addr FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory';",
				"another %s of slot %q is at work", verb, s.cfg.Source.Slot)
		}
		if err := backoff.Sleep(ctx, lockPatience/20); err != nil {
			return err
		}
	}
}

// lockPatience is how long the lock of a command just ended may stay: until the server
// hears of the end of the connection.
const lockPatience = 2 * time.Second

// fence ends what an instance that lost its slot, or an earlier repair, may still
// have on its way: with exactly_once it cannot commit a transaction any more.
// suffix is that of the transactional id.
func fence(ctx context.Context, cfg *config.Config, suffix string) error {
	if !wiring.ExactlyOnce(cfg) {
		return nil
	}
	out, err := claimed(ctx, cfg, suffix)
	if err == nil {
		out.Close()
	}
	return err
}

// claimed are transactions under the connector's id and the suffix.
func claimed(ctx context.Context, cfg *config.Config, suffix string, opts ...sink.Option) (*sink.Transactions, error) {
	id, err := wiring.TransactionalID(cfg)
	if err != nil {
		return nil, err
	}
	out, err := sink.NewTransactions(*cfg.Sink.Kafka, id+suffix, opts...)
	if err != nil {
		return nil, err
	}
	if err := out.Claim(ctx); err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}
