package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// GapOptions are the choices of AcceptGap.
type GapOptions struct {
	// Yes accepts; otherwise AcceptGap only reports the gap.
	Yes bool
	// Snapshot has the next run publish the rows in the outbox first.
	Snapshot bool
}

// GapReport describes the gap an operator accepts, and the changes for it.
type GapReport struct {
	Reason string    `json:"reason"`         // why the connector stopped; empty without a reason to
	From   string    `json:"from"`           // the last position known to be published; empty if none is
	Saved  time.Time `json:"saved,omitzero"` // when From was
	To     string    `json:"to"`             // where the stream goes on; before the work, the server's position
	Slot   string    `json:"slot"`           // its fate: kept, created, recreated
	// ReadAgain tells that the slot stands before From: the log between To and
	// From is read again, without a gap.
	ReadAgain bool `json:"read_again"`
	Done      bool `json:"done"`
	// Part is the transaction with From in its middle; empty: none.
	Part string `json:"part,omitempty"`
	// PartAgain: the published part is published again.
	PartAgain bool `json:"part_again,omitempty"`
	// Kafka names acknowledged records the brokers do not tell of; empty: none.
	Kafka string `json:"kafka,omitempty"`
	// Snapshot tells that the next run publishes the rows in the outbox first.
	Snapshot bool `json:"snapshot"`
	// Noted tells that the checkpoint notes the gap: retention then waits until
	// `repair --publish` has published what is missing.
	Noted bool `json:"noted"`
	// Unreadable says why `repair --publish` could not read the tables, and the remedy;
	// empty: it could, or is of no use.
	Unreadable string `json:"unreadable,omitempty"`

	// asTheyAre tells that no --snapshot could publish rows, for lack of a table or
	// of a store for the note.
	asTheyAre, retention bool
	once                 bool // events come exactly once, and the rows of a snapshot would not
	repairs              bool // repair can publish the missing events alone
	elsewhere            bool // From is a position of another server's log
	resumes              bool // run goes on where the checkpoint is, also within a transaction
	brokers              bool // brokers have lost records
}

// AcceptGap goes on from the present after a loss (exit code 3): a missing
// publication is created, the slot made anew where gone, lost, or older than
// the publication, and a fitting checkpoint written. AcceptGap refuses while
// the slot is in use.
func AcceptGap(ctx context.Context, cfg *config.Config, opts GapOptions) (*GapReport, error) {
	if opts.Snapshot && len(cfg.Source.Tables) == 0 {
		return nil, noTable("setup --snapshot", "leave it out")
	}
	if opts.Snapshot && cfg.Checkpoint.Store == store.StoreNone {
		return nil, failure.Configf("set checkpoint.store to kafka, postgres or file, also for run; or leave out --snapshot",
			"checkpoint.store is none: nothing would remember that the rows in the outbox are still to be published, so the next run would not publish them")
	}
	if opts.Snapshot && wiring.ExactlyOnce(cfg) { // see stream's fitsSnapshot
		return nil, failure.Configf(repairInstead, "with sink.kafka.delivery: exactly_once run publishes no snapshot but that of a first start: some rows would come twice")
	}
	d, err := openIdle(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer d.close()
	// Other obstacles of the next run must be corrected before the gap is
	// accepted. A missing publication will be made of the tables.
	if err := errors.Join(d.Unfit(), d.mistaken()); err != nil {
		return nil, fmt.Errorf("before a gap is accepted, what keeps the tables from being read must be corrected: %w", err)
	}
	report := d.planGap(ctx)
	acknowledged := d.acknowledged(ctx, report)
	report.Snapshot, report.retention = opts.Snapshot, cfg.Retention.After > 0
	report.Noted = d.gap(report) != nil
	if err := d.repairable(ctx, report); err != nil {
		return nil, err
	}
	if err := d.able(ctx, report); err != nil {
		return report, fmt.Errorf("nothing was changed: %w", err)
	}
	if !opts.Yes {
		return report, preview(report.repeat())
	}
	if err := d.ready(ctx); err != nil {
		return nil, err // before the slot is touched
	}
	return report, d.closeGap(ctx, report, acknowledged)
}

// repairInstead is the way without a snapshot.
const repairInstead = "`cdc-outbox setup --accept-gap --yes`, then `cdc-outbox run`, and beside it `cdc-outbox repair --publish`, which publishes the missing events alone"

// planGap decides about the slot. A readable slot is kept, with the publication
// known to the checkpoint. If the slot still has the log of the checkpoint, run
// goes on at the checkpoint. Otherwise all of the slot's log is published, also
// from before the checkpoint, possibly of another log.
func (d *decision) planGap(ctx context.Context) *GapReport {
	r := &GapReport{To: d.server.FlushLSN.String(), Slot: "kept",
		repairs:   len(d.cfg.Source.Tables) > 0 && d.cfg.Sink.Kafka != nil,
		once:      wiring.ExactlyOnce(d.cfg),
		asTheyAre: len(d.cfg.Source.Tables) == 0 || d.cfg.Checkpoint.Store == store.StoreNone}
	if d.stored != nil {
		r.From, r.Saved = d.stored.LSN.String(), d.stored.SavedAt
		r.elsewhere = d.stored.SystemID != d.server.SystemID
		if cut := d.stored.Cut; !cut.IsZero() {
			r.Part = fmt.Sprintf("%s, up to its change %d", cut.Landmark, cut.Seq)
		}
	}
	if d.mismatch != nil {
		r.Reason = d.mismatch.Error()
	}
	_, lost := d.Slot.Lost()
	same := func() bool {
		is, _ := d.recognised(ctx)
		return is
	}
	switch {
	case !d.Exists:
		r.Slot = "created"
	case lost, d.Publication == nil, d.stored != nil && !samePublication(d.stored.Publication, d.Fingerprint):
		r.Slot = "recreated"
	case d.stored != nil && !r.elsewhere && (d.Slot.ConfirmedFlush < d.stored.LSN || r.Part != "") && same():
		r.resumes, r.To = true, d.known().String()
	default:
		r.To = d.Slot.ConfirmedFlush.String()
		r.ReadAgain = d.stored != nil && !r.elsewhere && d.Slot.ConfirmedFlush < d.stored.LSN
		r.PartAgain = r.Part != ""
	}
	return r
}

// able returns the reason for a failure of the plan, or of the run after it:
// missing rights, and the checks of run before reading.
func (d *decision) able(ctx context.Context, r *GapReport) error {
	errs := []error{d.mayReplicate(ctx, "read")}
	if r.Slot != "kept" {
		errs = append(errs, logs(d.server))
	}
	if r.Slot == "created" {
		errs = append(errs, roomForSlot(d.server, d.cfg.Source.Slot))
	}
	for _, t := range d.cfg.Source.Tables {
		if r.Snapshot {
			errs = append(errs, d.mayRead(ctx, t, "the next run is to publish the rows in the table (--snapshot)"))
		}
		if d.cfg.Errors.OnBadEvent != transform.BadEventStop {
			errs = append(errs, d.bound(ctx, t))
		}
	}
	if d.Publication == nil {
		errs = append(errs, d.publishable(ctx))
	}
	return errors.Join(errs...)
}

// repairable notes why `repair --publish` could not read the tables, if so. The run
// before it needs no such right.
func (d *decision) repairable(ctx context.Context, r *GapReport) error {
	if !r.repairs || r.Snapshot {
		return nil
	}
	var notes []string
	for _, t := range d.cfg.Source.Tables {
		err := d.mayRead(ctx, t, "repair compares the rows with Kafka")
		if err != nil && failure.ClassOf(err) != failure.Config {
			return err
		}
		if err != nil {
			notes = append(notes, err.Error()+": "+failure.RemedyOf(err))
		}
	}
	r.Unreadable = strings.Join(notes, "; ")
	return nil
}

// bound returns why the table's columns do not suffice, if so.
func (d *decision) bound(ctx context.Context, t pg.Table) error {
	found, err := d.outboxTable(ctx, t)
	if err == nil && found != nil {
		err = found.unfit
	}
	return err
}

// publishable returns why the missing publication cannot be made, if so.
func (d *decision) publishable(ctx context.Context) error {
	infos, err := catalog.ReadTables(ctx, d.conn, d.cfg.Source.Tables)
	if err != nil {
		return err
	}
	return d.mayMakePublication(ctx, infos)
}

// acknowledged compares the records acknowledged according to the checkpoint with those
// the brokers have; nil: nothing is known.
func (d *decision) acknowledged(ctx context.Context, r *GapReport) *sink.Comparison {
	compared, err := compareEnds(ctx, d.cfg, d.stored)
	if err != nil {
		r.Kafka = err.Error()
	}
	if compared == nil {
		return nil
	}
	if compared.Untold != nil {
		r.Kafka = compared.Untold.Error()
	}
	if loss := compared.Loss(*d.cfg.Sink.Kafka); loss != nil && !d.stored.Notes(loss) {
		r.Reason, r.brokers = strings.TrimPrefix(r.Reason+"; "+loss.Error(), "; "), true
	}
	return compared
}

// gap is the accepted gap of the next checkpoint; nil: none. A published snapshot ends the
// gap, too.
func (d *decision) gap(r *GapReport) *checkpoint.AcceptedGap {
	var was *checkpoint.AcceptedGap
	if d.stored != nil {
		was = d.stored.Accepted
	}
	if !r.repairs || d.cfg.Checkpoint.Store == store.StoreNone || !d.leavesOut(r) {
		return was
	}
	g := d.stored.Accept(d.mismatch, r.brokers || r.elsewhere)
	g.Reason = r.Reason
	return g
}

// leavesOut reports whether events may never be published after the decision: all that is
// not known to be harmless.
func (d *decision) leavesOut(r *GapReport) bool {
	pending := d.stored != nil && d.stored.Snapshot || d.begun != nil && d.cfg.Source.Snapshot == config.SnapshotInitial
	otherMessages := r.Slot == "kept" && d.stored != nil && !d.stored.Made && failure.ClassOf(d.mismatch) == failure.Config && !r.brokers
	switch {
	case pending && !r.Snapshot, r.Slot == "recreated":
		return true
	case r.Reason == "", otherMessages:
		return false
	}
	return true
}

// samePublication compares the publications of two fingerprints, without their
// tables. A slot can still be read if tables came or went, but not from before
// the publication was created.
func samePublication(a, b string) bool {
	a, _, _ = strings.Cut(a, ":")
	b, _, _ = strings.Cut(b, ":")
	return a == b
}

func (d *decision) closeGap(ctx context.Context, r *GapReport, acknowledged *sink.Comparison) error {
	from := d.source()
	if d.Publication == nil {
		infos, err := catalog.ReadTables(ctx, d.conn, from.Tables)
		if err != nil {
			return err
		}
		if err := catalog.CreatePublication(ctx, d.conn, from.Publication, infos); err != nil {
			return err
		}
		if err := d.ReadPublication(ctx, d.conn, from); err != nil {
			return err
		}
	}
	at := d.Slot.ConfirmedFlush
	if r.Slot == "recreated" {
		if err := catalog.DropSlot(ctx, d.conn, from.Slot); err != nil {
			return err
		}
	}
	if r.Slot != "kept" {
		var err error
		if at, err = d.createSlot(ctx); err != nil {
			return err
		}
	}
	if r.resumes {
		at = d.known()
	}
	if err := d.save(ctx, d.accepted(at, r, acknowledged)); err != nil {
		return err
	}
	r.To, r.Done = at.String(), true
	return nil
}

// accepted is the checkpoint for run to go on from. It keeps the stored notes of
// Kafka: records consumers may see already, and the ends brokers had
// acknowledged.
func (d *decision) accepted(at pg.LSN, r *GapReport, acknowledged *sink.Comparison) checkpoint.Checkpoint {
	cp := d.checkpointAt(at)
	cp.Snapshot, cp.Accepted = r.Snapshot, d.gap(r).Goes(at)
	old := d.stored
	if old == nil {
		return cp
	}
	cp.Epoch, cp.Ends = old.Epoch+1, old.Ends
	cp.Quarantine, cp.Settled = old.Quarantine, old.Settled
	if acknowledged != nil {
		cp.Ends = acknowledged.Now()
	}
	if r.elsewhere {
		return cp
	}
	cp.Owned, cp.Doubtful, cp.Published = d.owned().Settled(), old.Doubtful, old.HasPublished()
	if old.Skip.Commit >= at {
		cp.Skip = old.Skip
	}
	if r.resumes {
		cp.Cut = old.Cut
		if at == old.LSN {
			cp.Landmark = old.Landmark
		}
	}
	return cp
}

// WriteText prints the report for a person to decide.
func (r *GapReport) WriteText(w io.Writer) error {
	var l lines
	r.explain(&l)
	if r.Done {
		l.printf("Slot: %s.\n", r.Slot)
	} else {
		l.printf("Slot: would be %s.\n", r.Slot)
	}
	r.ways(&l)
	if r.Done {
		l.printf("Done: run goes on from %s.\n", r.To)
	}
	return l.to(w)
}

// repeat is how the plan is carried out.
func (r *GapReport) repeat() string {
	if r.Snapshot || r.asTheyAre || r.once {
		return "repeat it with --yes"
	}
	return "repeat it with --yes --snapshot, or with --yes"
}

// from is the beginning of the gap, with the time of the checkpoint: a person
// finds rows by time.
func (r *GapReport) from() string {
	switch {
	case r.From == "":
		return "an unknown position (there is no checkpoint)"
	case r.Saved.IsZero():
		return r.From
	}
	return fmt.Sprintf("%s (saved at %s)", r.From, r.Saved.Format(time.RFC3339))
}

// ways tells the fate of the rows in the outbox, with --snapshot and without.
func (r *GapReport) ways(l *lines) {
	const again = "run first publishes every row that is in the outbox tables, under its own id, also those that were published before; old events of a key then come behind newer ones."
	without := "run publishes no row again that is in the outbox tables"
	if r.retention && !r.Noted {
		without += ", and retention deletes them when they are old"
	}
	if r.repairs {
		without += "; `cdc-outbox repair --publish`, beside run, publishes the missing events alone"
	}
	switch {
	case r.Snapshot:
		l.printf("Rows: %s\n", again)
	case r.asTheyAre:
	case r.Done, r.once:
		l.printf("Rows: %s.\n", without)
	default:
		l.printf("With --yes --snapshot: %s\nWith --yes: %s.\n", again, without)
	}
	if r.Noted && !r.Snapshot {
		l.printf("Noted in the checkpoint%s, until `cdc-outbox repair --publish` has published what is missing: retention waits, and `cdc-outbox status` shows it.\n", map[bool]string{false: " then"}[r.Done])
	}
	if r.Unreadable != "" {
		l.printf("Before `cdc-outbox repair --publish`: %s\n", r.Unreadable)
	}
}

// explain names missing events, as far as known, and those published again.
func (r *GapReport) explain(l *lines) {
	switch {
	case r.Reason != "":
		l.printf("Why the connector stopped: %s\n", r.Reason)
	case r.From == "":
		l.printf("There is no checkpoint, and no gap is known.\n")
	default:
		l.printf("The slot fits the checkpoint: no gap is known.\n")
	}
	gap := r.Reason != ""
	switch {
	case r.ReadAgain:
		l.printf("Read again: the slot still has what was committed between %s and %s, where the checkpoint is; what was published of it is published once more.\n", r.To, r.from())
	case gap && r.elsewhere:
		l.printf("Gap: events committed after %s on the server of the checkpoint, or before %s on this one, may never have been published.\n", r.from(), r.To)
	case gap && r.From != r.To:
		l.printf("Gap: events committed between %s and %s may never have been published.\n", r.from(), r.To)
	}
	switch {
	case r.PartAgain:
		l.printf("Published again: transaction %s, of which this much is published already; the slot does not have the log any more that the checkpoint is of.\n", r.Part)
	case r.Part != "" && !r.resumes:
		l.printf("Gap: transaction %s is published; the rest of it is not.\n", r.Part)
	case r.Part != "":
		l.printf("Transaction %s is published; run goes on behind that.\n", r.Part)
	}
	if r.Kafka != "" {
		l.printf("Brokers do not tell whether they have all that they had acknowledged, and run will compare it: %s\n", r.Kafka)
	}
	if gap && (r.ReadAgain || r.From == r.To) {
		l.printf("Gap: apart from what is named above, nothing that was committed from %s on is missing.\n", r.To)
	}
}
