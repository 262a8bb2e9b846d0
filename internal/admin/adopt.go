package admin

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// AdoptReport names the slot taken over, and the position.
type AdoptReport struct {
	Slot   string          `json:"slot"`
	From   string          `json:"from"`             // everything committed behind it is published
	Holder *catalog.Holder `json:"holder,omitempty"` // the slot's reader now, who may move it on
	// Known: a checkpoint has the slot already, or setup made the slot: there is
	// nothing to take over.
	Known bool `json:"known"`
	Done  bool `json:"done"`
	// Repeated is what is committed behind the slot's position; nil: somebody reads the slot,
	// or there is no Kafka.
	Repeated *Repeated `json:"repeated,omitempty"`
	// Skipped are the events left out, which are in Kafka.
	Skipped int64 `json:"skipped"`
	// Connector is the state of Debezium's connector, by the Connect worker.
	Connector string `json:"connector,omitempty"`
}

// AdoptOptions are the choices of Adopt.
type AdoptOptions struct {
	// Yes does it. Otherwise Adopt only tells what it would do.
	Yes bool
	// SkipPublished leaves out the first transactions behind the slot's position, as far as
	// all their events are in Kafka.
	SkipPublished bool
	// Reader is the slot's reader until now, where its configuration is known.
	Reader *Reader
	// Note takes a line about a wait; nil: nobody listens.
	Note func(string)
}

// Reader is a connector of Debezium's.
type Reader struct {
	Slot, Publication, Plugin string
	DropsSlot                 bool // when it stops
	// State asks the Connect worker; nil: nobody does. runs tells that the connector is
	// to run.
	State func(context.Context) (text string, runs bool, err error)
}

// Adopt notes another program's slot in the checkpoint, so the next run goes on
// from the slot, and notices a drop until then. Adopt changes nothing else, and
// nothing at all without Yes.
func Adopt(ctx context.Context, cfg *config.Config, opts AdoptOptions) (*AdoptReport, error) {
	if opts.Note == nil {
		opts.Note = func(string) {}
	}
	if err := opts.Reader.fits(cfg); err != nil {
		return nil, err
	}
	if cfg.Source.Mode != config.ModePoll && cfg.Checkpoint.Store == store.StoreNone {
		return nil, failure.Configf("set checkpoint.store to kafka, postgres or file, also for run",
			"checkpoint.store is none: nothing would remember the slot")
	}
	d, err := openDecision(ctx, cfg, "adopt")
	if err != nil {
		return nil, err
	}
	defer d.close()
	if err := d.adoptable(); err != nil {
		return nil, err
	}
	r := &AdoptReport{Slot: d.Slot.Name, From: d.known().String(), Known: d.stored != nil || d.begun != nil}
	if r.Known {
		return r, nil
	}
	if err := d.renamed(ctx, d.view, d.store); err != nil {
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	if d.Slot.Active {
		holder, err := catalog.ReadHolder(ctx, d.conn, d.Slot.ActivePID)
		if err != nil {
			return nil, err
		}
		r.Holder = &holder
	}
	if err := d.mayReplicate(ctx, "read"); err != nil { // as the next run does
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	if err := d.takeover(ctx, opts, r); err != nil {
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	if !opts.Yes {
		return r, preview("repeat it with --yes")
	}
	if err := d.ready(ctx); err != nil {
		return nil, err
	}
	cp := d.checkpointAt(d.Slot.ConfirmedFlush)
	cp.Adopted = d.Slot.Active
	if r.Skipped > 0 {
		cp.LSN, cp.Landmark = r.Repeated.end, r.Repeated.landmark
		r.From = cp.LSN.String()
	}
	if err := d.save(ctx, cp); err != nil {
		return nil, err
	}
	r.Done = true
	return r, nil
}

// takeover looks at the former reader, and at the events that it may have published.
func (d *decision) takeover(ctx context.Context, opts AdoptOptions, r *AdoptReport) (err error) {
	runs := false
	if reader := opts.Reader; reader != nil && reader.State != nil {
		if r.Connector, runs, err = reader.State(ctx); err != nil {
			return fmt.Errorf("ask the Connect worker: %w", err)
		}
	}
	switch {
	case d.Slot.Active && opts.SkipPublished:
		return failure.Configf("stop Debezium first (PUT /connectors/NAME/stop at its Connect worker), or leave out --skip-published",
			"slot %q is read by %s, who publishes meanwhile", d.Slot.Name, r.Holder)
	case runs && !d.Slot.Active:
		return failure.Configf("stop it: PUT /connectors/NAME/stop at its Connect worker", "Debezium's connector is to run (%s), and would read the slot again", r.Connector)
	case d.Slot.Active || d.cfg.Sink.Kafka == nil:
		return nil
	}
	if r.Repeated, err = d.repeated(ctx, opts.Note); err != nil {
		return err
	}
	if opts.SkipPublished {
		r.Skipped = r.Repeated.Ahead
	}
	return nil
}

// fits is the reason against taking over from the reader.
func (r *Reader) fits(cfg *config.Config) error {
	const otherwise = "; otherwise switch with a new slot: docs/how-to/debezium.md"
	switch {
	case r == nil:
		return nil
	case r.Slot != cfg.Source.Slot:
		return failure.Configf("set source.slot: "+r.Slot+", or name the connector that reads the slot", "Debezium's slot.name is %q, and source.slot %q", r.Slot, cfg.Source.Slot)
	case r.Plugin != catalog.Plugin:
		return anotherPlugin(r.Slot, r.Plugin)
	case r.Publication != cfg.Source.Publication:
		return failure.Configf("set source.publication: "+r.Publication, "Debezium's publication.name is %q, and source.publication %q", r.Publication, cfg.Source.Publication)
	case r.DropsSlot:
		return failure.Configf("set slot.drop.on.stop to false, and let Debezium start with that once"+otherwise, "Debezium drops slot %q when it stops (slot.drop.on.stop)", r.Slot)
	}
	return nil
}

// anotherPlugin is the error about a slot that cannot be taken over.
func anotherPlugin(slot, plugin string) error {
	return failure.Configf("take a new slot: another source.slot, source.create: true, and while Debezium still runs `cdc-outbox setup`, which notes the position; then stop Debezium and start run. Events in between come twice, unless the writers are stopped: docs/how-to/debezium.md",
		"slot %q uses the output plugin %q, not %s, and a slot's plugin cannot be changed", slot, plugin, catalog.Plugin)
}

// adoptable returns the reason against taking over the slot, if any. A slot
// unknown to the store is no reason.
func (d *decision) adoptable() error {
	switch {
	case d.stored == nil && d.gone == nil && !d.Exists:
		return failure.Configf("correct source.slot. If its reader dropped it when it stopped (Debezium does with slot.drop.on.stop), "+
			"let that read its table again, turn that off, and adopt the slot while it is read. `cdc-outbox setup` makes a new slot, which has what is committed from then on",
			"slot %q does not exist: there is nothing to take over", d.cfg.Source.Slot)
	case d.Exists && d.Slot.Plugin != catalog.Plugin && d.Slot.Plugin != "":
		return anotherPlugin(d.Slot.Name, d.Slot.Plugin)
	case d.Publication == nil && d.stored == nil:
		return failure.Configf("set source.publication to the one that the slot's reader uses (Debezium: publication.name), or create it with `cdc-outbox setup`",
			"publication %q does not exist", d.cfg.Source.Publication)
	case d.mismatch != nil && !errors.Is(d.mismatch, checkpoint.ErrNone):
		return d.mismatch
	}
	if err := d.Unfit(); err != nil {
		return fmt.Errorf("the tables cannot be read through the publication: %w", err)
	}
	return nil
}

// WriteText prints the report for a person.
func (r *AdoptReport) WriteText(w io.Writer) error {
	var l lines
	switch {
	case r.Known:
		l.printf("Slot %s is known already: run goes on from %s.\n", r.Slot, r.From)
		return l.to(w)
	case r.Done:
		l.printf("Slot %s is taken over: run goes on from %s.\n", r.Slot, r.From)
	default:
		l.printf("Slot %s would be taken over: run would go on from %s.\n", r.Slot, r.From)
	}
	if r.Holder != nil {
		l.printf("It is read by %s, which may move it on until it is stopped. It must not drop it: for Debezium, slot.drop.on.stop is false.\n", r.Holder)
	}
	l.repeated(r)
	if r.Connector != "" {
		l.printf("Kafka Connect tells of Debezium's connector: %s.\n", plain(r.Connector))
	}
	return l.to(w)
}

// repeated tells which events come again.
func (l *lines) repeated(r *AdoptReport) {
	again := r.Repeated
	if again == nil {
		l.printf("What its reader has published and not confirmed comes again. If the slot is gone then, run ends with exit code 3.\n")
		return
	}
	atLeast := ""
	if !again.Whole {
		atLeast = "at least "
	}
	l.printf("Behind the slot's position %s%d events are committed, %d of them are in Kafka already.\n", atLeast, again.Events, again.InKafka)
	switch rest := again.InKafka - r.Skipped; {
	case r.Skipped > 0:
		l.printf("%d are left out, those of the first transactions; %d of those in Kafka come again.\n", r.Skipped, rest)
	case rest > 0:
		l.printf("These %d come again, with the same id. --skip-published leaves out %d, those of the first transactions.\n", rest, again.Ahead)
	}
}
