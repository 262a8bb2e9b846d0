package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// PrepareOptions are the choices of PrepareUpgrade.
type PrepareOptions struct {
	// Yes writes the marker; otherwise nothing is changed.
	Yes bool
	// Timeout bounds the wait for the connector, and the reading of the slot.
	Timeout time.Duration
	// Note takes the reason for a long wait, once.
	Note func(string)
}

// PrepareReport says how far a major upgrade of the server is prepared.
type PrepareReport struct {
	Version int    `json:"version"` // of the server
	Slot    string `json:"slot"`
	// Published is the position up to which all is in Kafka.
	Published string `json:"published,omitempty"`
	// Unpublished counts the slot's events behind Published.
	Unpublished int `json:"unpublished"`
	// Open is the longest open transaction, perhaps still to write.
	Open *catalog.OpenTransaction `json:"longest_transaction,omitempty"`
	// Marked is when the marker was written.
	Marked time.Time `json:"marked,omitzero"`
	Done   bool      `json:"done"`
	Next   []string  `json:"next"`
}

// PrepareUpgrade makes sure that all is in Kafka, and writes the marker by which
// FinishUpgrade knows the upgraded server. While a connector reads the slot,
// PrepareUpgrade waits until all is published, and then asks for the connector's
// stop. A repetition does no harm.
func PrepareUpgrade(ctx context.Context, cfg *config.Config, opts PrepareOptions) (*PrepareReport, error) {
	if err := upgradable(cfg, "upgrade prepare"); err != nil {
		return nil, err
	}
	d, err := openDecision(ctx, cfg, "upgrade prepare")
	if err != nil {
		return nil, err
	}
	defer d.close()
	r := &PrepareReport{Version: d.server.Version, Slot: cfg.Source.Slot}
	if opts.Yes {
		if err := d.only(ctx, "upgrade prepare"); err != nil {
			return r, err
		}
	}
	switch {
	case d.mismatch != nil:
		return nil, fmt.Errorf("before an upgrade, something else is to be decided: %w", d.mismatch)
	case d.stored == nil:
		return nil, failure.Configf("start the connector once, and let it publish; if it never has, upgrade, and then `cdc-outbox setup`",
			"there is no checkpoint: nothing was read of slot %q", r.Slot)
	case d.stored.Snapshot && !d.Slot.Active:
		r.Next = []string{"start the connector", "repeat this command beside it"}
		return r, &failure.Error{Class: failure.Transient, Remedy: "start the connector, and repeat the command beside it",
			Err: errors.New("not prepared: the rows of the tables are still to be published, as a snapshot")}
	}
	if d.Slot.Active {
		return r, r.running(ctx, cfg, opts)
	}
	if err := refuseSlot(ctx, d.conn, d.Slot, d.server.Database); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	return r, d.prepare(ctx, r, opts.Yes)
}

// upgradable refuses a configuration without a slot or a checkpoint.
func upgradable(cfg *config.Config, verb string) error {
	switch {
	case cfg.Source.Mode == config.ModePoll:
		return noSlot(verb, "there is nothing to prepare or to finish: run publishes the rows that are not marked as published, also on the new server")
	case cfg.Checkpoint.Store == store.StoreNone:
		return failure.Configf("set checkpoint.store to kafka, postgres or file, also for run",
			"checkpoint.store is none: nothing would remember what was published before the upgrade")
	}
	return nil
}

// running waits for a connector to publish all, and asks for its stop.
func (r *PrepareReport) running(ctx context.Context, cfg *config.Config, opts PrepareOptions) error {
	waited, err := Wait(ctx, cfg, WaitOptions{Timeout: opts.Timeout, Note: opts.Note})
	if err != nil {
		return err
	}
	r.Published = waited.LSN
	r.Next = []string{"make sure that the writers are stopped", "stop the connector", "repeat this command"}
	return failure.Configf("stop the connector, and repeat the command", "nothing was marked: the connector still reads slot %q", r.Slot)
}

// prepare looks for unpublished events, and writes the marker.
func (d *decision) prepare(ctx context.Context, r *PrepareReport, yes bool) (err error) {
	if r.Open, err = catalog.LongestTransaction(ctx, d.conn); err != nil {
		return err
	}
	cp := *d.stored
	cp.Upgrade = &checkpoint.Upgrade{Version: d.server.Version, At: time.Now().UTC().Truncate(time.Second)}
	until := d.server.FlushLSN
	if yes {
		if err := d.ready(ctx); err != nil {
			return err
		}
		if cp.Upgrade.Marker, err = catalog.SetMarker(ctx, d.conn); err != nil {
			return err
		}
		until = cp.Upgrade.Marker.End
	}
	if r.Unpublished, err = d.unpublished(ctx, until); err != nil {
		return err
	}
	r.Published = d.known().String()
	if r.Unpublished > 0 {
		r.Next = []string{"stop the writers", "start the connector", "repeat this command beside it"}
		return unpublishedYet(r.Unpublished)
	}
	r.Published = until.String()
	if !yes {
		return preview("repeat it with --yes")
	}
	cp.LSN, cp.SavedAt = max(cp.LSN, until), time.Now().UTC()
	cp.Epoch++
	if until, err = d.mark(ctx, cp); err != nil {
		return err
	}
	if _, err := d.conn.Exec(ctx, `SELECT pg_replication_slot_advance($1, $2::text::pg_lsn)`, r.Slot, until.String()); err != nil {
		return fmt.Errorf("move slot %q on to the marker: %w", r.Slot, err)
	}
	r.Done, r.Marked, r.Next = true, cp.Upgrade.At, nextUpgrade(d.server.Major())
	return nil
}

// mark saves the checkpoint with the marker, and returns the position for the slot
// to confirm: first the checkpoint, then the slot, as a connector does.
//
// pg_upgrade keeps a slot of PostgreSQL 17 only if it has confirmed every commit of
// the database, including the marker's, and the commit of a checkpoint kept in the database.
func (d *decision) mark(ctx context.Context, cp checkpoint.Checkpoint) (pg.LSN, error) {
	inside := d.cfg.Checkpoint.Store == store.StorePostgres
	cp.Adopted = inside // the slot moves on behind the checkpoint
	if err := d.save(ctx, cp); err != nil || !inside {
		return cp.LSN, err
	}
	server, err := catalog.ReadServer(ctx, d.conn)
	if err != nil {
		return 0, err
	}
	n, err := d.unpublished(ctx, server.FlushLSN)
	if err == nil && n > 0 {
		err = unpublishedYet(n)
	}
	return server.FlushLSN, err
}

// unpublishedYet is the error of a slot with events for the connector.
func unpublishedYet(n int) error {
	return &failure.Error{Class: failure.Transient, Remedy: "stop the writers, start the connector, and repeat the command beside it",
		Err: fmt.Errorf("not prepared: the slot has %d events that are not published", n)}
}

// nextUpgrade is the way on from a prepared server of the major version.
func nextUpgrade(major int) []string {
	how := "pg_upgrade; or switch to the copy, once it has everything"
	if major >= 17 {
		how = "pg_upgrade, which keeps the slot if max_replication_slots and wal_level = logical are set for the new server (if it says that a slot has not consumed all WAL, start the old server, and repeat this command); or switch to the copy, once it has everything"
	}
	return []string{
		"leave writers and connector stopped; a connector started on this server undoes the preparation",
		how,
		"source.url of the new server, and `cdc-outbox upgrade finish`",
	}
}

// WriteText prints the report for a person.
func (r *PrepareReport) WriteText(w io.Writer) error {
	var l lines
	l.server(r.Version)
	switch {
	case r.Done:
		l.line("prepared", "all that was committed up to %s is in Kafka, and the marker of %s is behind it", r.Published, r.Marked.Format(time.RFC3339))
	case r.Unpublished > 0:
		l.line("not yet", "%d events behind %s are not published", r.Unpublished, r.Published)
	case r.Published != "":
		l.line("published", "all that was committed up to %s is in Kafka", r.Published)
	}
	if r.Open != nil {
		l.line("open", "%s: what it commits yet is not in Kafka", r.Open)
	}
	l.next(r.Next)
	return l.to(w)
}
