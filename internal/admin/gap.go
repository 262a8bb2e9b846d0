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
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// GapOptions are the choices of AcceptGap.
type GapOptions struct {
	// Yes does it; without it AcceptGap only says what would be accepted.
	Yes bool
	// Snapshot has the next run publish the rows that are in the outbox first.
	Snapshot bool
}

// GapReport says which gap an operator accepts, and what is done for it.
type GapReport struct {
	Reason string `json:"reason"` // why the connector stopped; empty if it had no reason to
	From   string `json:"from"`   // the last position that is known to be published; empty if none is
	To     string `json:"to"`     // where the stream goes on; before it is done, the server's position
	Slot   string `json:"slot"`   // what becomes of the slot: kept, created, recreated
	// ReadAgain tells that the slot stands before From: what lies between To and
	// From is read again, and is no gap.
	ReadAgain bool `json:"read_again"`
	Done      bool `json:"done"`
	// Snapshot tells that the next run publishes the rows in the outbox first.
	Snapshot bool `json:"snapshot"`

	messagesOnly, retention bool
	elsewhere               bool // From is a position of another server's log
}

// AcceptGap goes on from the present after a loss (exit code 3): it creates a
// missing publication, makes the slot anew where it is gone, lost, or older
// than its publication, and writes a checkpoint that fits. It refuses while the
// slot is in use.
func AcceptGap(ctx context.Context, cfg *config.Config, opts GapOptions) (*GapReport, error) {
	if cfg.Source.Mode == config.ModePoll {
		return nil, noSlot("setup --accept-gap")
	}
	if opts.Snapshot && len(cfg.Source.Tables) == 0 {
		return nil, noTable("setup --snapshot")
	}
	if opts.Snapshot && cfg.Checkpoint.Store == store.StoreNone {
		return nil, failure.Configf("set checkpoint.store to kafka, postgres or file, also for run; or leave out --snapshot",
			"checkpoint.store is none: nothing would remember that the rows in the outbox are still to be published, so the next run would not publish them")
	}
	d, err := openDecision(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if err := d.readable(ctx); err != nil {
		return nil, err
	}
	report := planGap(d.view)
	report.Snapshot, report.retention = opts.Snapshot, cfg.Retention.After > 0
	if !opts.Yes {
		return report, failure.Configf("repeat it with --yes", "nothing was changed")
	}
	if err := d.ready(ctx); err != nil {
		return nil, err // before the slot is touched
	}
	return report, d.closeGap(ctx, report)
}

// readable refuses to accept a gap while the next run would stop anyway. The
// operator is to fix that first.
func (d *decision) readable(ctx context.Context) error {
	if d.publication == nil {
		return nil // it will be created for the tables, or the creation fails
	}
	failures, _, err := checkTables(ctx, d.conn, d.cfg, *d.publication, d.tables)
	if err := errors.Join(append(failures, err)...); err != nil {
		return fmt.Errorf("before a gap is accepted, what keeps the tables from being read is to be fixed: %w", err)
	}
	return nil
}

// planGap decides what becomes of the slot. It is kept if it can be read, and
// its publication is the one that the checkpoint knows: then all that it still
// has is published, also what lies before the checkpoint, which may be of
// another log.
func planGap(v *view) *GapReport {
	r := &GapReport{To: v.seen.CurrentLSN.String(), Slot: "kept", messagesOnly: len(v.tables) == 0}
	if v.stored != nil {
		r.From = v.stored.LSN.String()
	}
	_, lost := v.seen.Slot.Lost()
	switch {
	case !v.seen.Exists:
		r.Slot = "created"
	case lost, v.publication == nil, v.stored != nil && !samePublication(v.stored.Publication, v.seen.Publication):
		r.Slot = "recreated"
	default:
		r.To = v.seen.Slot.ConfirmedFlush.String()
		r.ReadAgain = v.stored != nil && v.stored.SystemID == v.seen.SystemID && v.seen.Slot.ConfirmedFlush < v.stored.LSN
	}
	r.elsewhere = v.stored != nil && v.stored.SystemID != v.seen.SystemID
	if v.mismatch != nil {
		r.Reason = v.mismatch.Error()
	}
	return r
}

// samePublication compares the publications of two fingerprints, without their
// tables. A slot can still be read if tables came or went, but not from before
// its publication was created.
func samePublication(a, b string) bool {
	a, _, _ = strings.Cut(a, ":")
	b, _, _ = strings.Cut(b, ":")
	return a == b
}

func (d *decision) closeGap(ctx context.Context, r *GapReport) error {
	conn, cfg, v := d.conn, d.cfg, d.view
	if v.publication == nil {
		infos, err := catalog.ReadTables(ctx, conn, v.tables)
		if err != nil {
			return err
		}
		if err := catalog.CreatePublication(ctx, conn, cfg.Source.Publication, infos); err != nil {
			return err
		}
	}
	pub, _, err := catalog.ReadPublication(ctx, conn, cfg.Source.Publication)
	if err != nil {
		return err
	}

	at := v.seen.Slot.ConfirmedFlush
	if r.Slot == "recreated" {
		if err := catalog.DropSlot(ctx, conn, cfg.Source.Slot); err != nil {
			return err
		}
	}
	if r.Slot != "kept" {
		if at, err = createSlot(ctx, cfg, conn); err != nil {
			return err
		}
	}
	cp := checkpoint.Checkpoint{
		LSN:         at,
		Landmark:    checkpoint.Landmark{Commit: at},
		Scope:       checkpoint.Scope(v.tables, cfg.Source.Mode == config.ModeMessage, cfg.Source.MessagePrefix),
		SystemID:    v.seen.SystemID,
		Timeline:    v.seen.Timeline,
		Database:    v.seen.Database,
		Slot:        cfg.Source.Slot,
		Publication: pub.Fingerprint(v.tables),
		SavedAt:     time.Now().UTC(),
		Epoch:       1,
		Snapshot:    r.Snapshot,
	}
	if v.stored != nil {
		cp.Epoch = v.stored.Epoch + 1
	}
	if err := d.save(ctx, cp); err != nil {
		return err
	}
	r.To, r.Done = at.String(), true
	return nil
}

// WriteText prints the report for a person who has to decide.
func (r *GapReport) WriteText(w io.Writer) error {
	var b strings.Builder
	b.WriteString(r.explain())
	if r.Done {
		fmt.Fprintf(&b, "Slot: %s.\n", r.Slot)
	} else {
		fmt.Fprintf(&b, "Slot: would be %s.\n", r.Slot)
	}
	switch {
	case r.Snapshot:
		b.WriteString("Rows that are in the outbox tables are published first, under their own ids; some may have been published before.\n")
	case r.retention:
		b.WriteString("Rows that are in the outbox tables stay unpublished, and retention deletes them when they are old; --snapshot publishes them.\n")
	case !r.messagesOnly:
		b.WriteString("Rows that are in the outbox tables stay unpublished; --snapshot publishes them.\n")
	}
	if r.Done {
		fmt.Fprintf(&b, "Done: run goes on from %s.\n", r.To)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// explain says what is missing, as far as that is known, and what is published
// again.
func (r *GapReport) explain() string {
	var b strings.Builder
	switch {
	case r.Reason != "":
		fmt.Fprintf(&b, "Why the connector stopped: %s\n", r.Reason)
	case r.From == "":
		b.WriteString("There is no checkpoint, and no gap is known.\n")
	default:
		b.WriteString("The slot fits the checkpoint: no gap is known.\n")
	}
	gap := r.Reason != ""
	switch {
	case r.ReadAgain:
		fmt.Fprintf(&b, "Read again: the slot still has what was committed between %s and %s, where the checkpoint is; what was published of it is published once more.\n", r.To, r.From)
	case gap && r.elsewhere:
		fmt.Fprintf(&b, "Gap: events committed after %s on the server of the checkpoint, or before %s on this one, may never have been published.\n", r.From, r.To)
	case gap && r.From != r.To:
		fmt.Fprintf(&b, "Gap: events committed between %s and %s may never have been published.\n",
			or(r.From, "an unknown position (there is no checkpoint)"), r.To)
	}
	if gap && (r.ReadAgain || r.From == r.To) {
		fmt.Fprintf(&b, "Gap: apart from what is named above, nothing that was committed from %s on is missing.\n", r.To)
	}
	return b.String()
}
