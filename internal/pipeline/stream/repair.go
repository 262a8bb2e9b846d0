package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
)

// Repairer compares rows with the records in Kafka, by event id. A single goroutine uses
// it.
type Repairer interface {
	// Readable returns which right on the tables a repair would lack, of class
	// failure.Config.
	Readable(ctx context.Context, conn *pgx.Conn) error
	// Ready ends what an operator's repair may still have on its way, and returns why a
	// repair would fail, as for lack of a right. conn is to the source.
	Ready(ctx context.Context, conn *pgx.Conn) error
	// Repair calls publish with groups of the missing events, in the order of
	// publication; nil only compares. observe sees the progress until the return. An
	// error of class failure.Loss is the reason for not knowing the missing events;
	// nothing was published then.
	Repair(ctx context.Context, conn *pgx.Conn, of Lacking, publish func(context.Context, []delivery.Item) error, observe func(func() RepairStatus)) (RepairStatus, error)
}

// Lacking are the rows that may not be published: all in a snapshot, unless something
// is known of them.
type Lacking struct {
	Snapshot string // the name of the exported snapshot
	// Before: all of transactions with a lower id is published; 0: not known.
	Before uint64
	// Known: an event of the rows' log was published.
	Known bool
}

// RepairStatus is the progress of a repair.
type RepairStatus struct {
	// Rows and Records were read; RecordsAhead are still to be read, as far as known.
	Rows         int64 `json:"rows"`
	Records      int64 `json:"records"`
	RecordsAhead int64 `json:"records_ahead"`
	// Missing and Published are events: all without a record, and those of them
	// published by now.
	Missing   int64 `json:"missing"`
	Published int64 `json:"published"`
}

// ErrToRepair ends a pipeline that has read, with a loss. A new pipeline, with nothing
// in flight, may repair it.
var ErrToRepair = errors.New("to be repaired, as errors.on_loss says")

// toRepair adds ErrToRepair to a loss.
func (s *source) toRepair(err error) error {
	if s.repairer == nil || s.epoch == 0 || !checkpoint.LacksLog(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrToRepair, err)
}

// remake makes the slot anew after a loss, if a repair can mend the loss; otherwise it
// returns the loss. First the checkpoint notes the loss, so that a crash from here on
// begins the repair again. A readable slot is dropped only after a look has found the
// repair able to know everything.
func (s *source) remake(ctx context.Context, sql *pgx.Conn, repl *pgconn.PgConn, h *acquired, seen *checkpoint.Server, loss error) error {
	gap := h.found.GapIn(loss, *seen)
	switch {
	case gap == nil:
		return loss
	case s.repairer == nil && s.opts.Repairable:
		return checkpoint.OfferRepair(loss, s.opts.Fleet)
	case s.repairer == nil || s.epoch != 0:
		return loss
	}
	s.health.repairing("the slot is to be made anew after a loss: " + loss.Error())
	alone, err := catalog.LockVerb(ctx, sql, catalog.RepairVerb, s.opts.Slot)
	if err == nil && !alone {
		err = fmt.Errorf("%w: another repair of it is at work", catalog.ErrSlotActive)
	}
	if err != nil {
		return err
	}
	h.gap = gap
	if err := s.repairer.Ready(ctx, sql); err != nil {
		return unready(loss, err)
	}
	if _, lost := seen.Slot.Lost(); seen.Exists && !lost {
		if err := s.foresee(ctx, sql, h, loss); err != nil {
			return err
		}
	}
	if err := s.noteGap(ctx, h, loss); err != nil {
		return err
	}
	s.log.Warn("log was lost: the slot is made anew, and the missing events are published from the tables, as errors.on_loss says",
		zap.Error(loss), zap.Bool("another_log", gap.Diverged))
	if seen.Exists {
		if err := catalog.DropSlot(ctx, sql, s.opts.Slot); err != nil {
			return yieldTo(err)
		}
	}
	return s.createAnew(ctx, sql, repl, h, seen)
}

// foresee compares without publishing.
func (s *source) foresee(ctx context.Context, sql *pgx.Conn, h *acquired, loss error) error {
	held, err := catalog.HoldSnapshot(ctx, s.opts.URL, "")
	if err != nil {
		return err
	}
	defer held.Release()
	defer s.waitForSnapshot(ctx, sql.PgConn())()
	_, err = s.repairer.Repair(ctx, sql, h.lacking(held), nil, s.health.observeRepair)
	return unmended(loss, err)
}

// unready is why the loss is not repaired yet, as for lack of a right.
func unready(loss, err error) error {
	if failure.ClassOf(err) != failure.Config {
		return fmt.Errorf("repair: %w", err)
	}
	return failure.Configf(failure.RemedyOf(err), "%w; errors.on_loss: repair cannot begin: %w", loss, err)
}

// warnOfRights warns once if a repair would fail for lack of a right.
func (s *source) warnOfRights(ctx context.Context, sql *pgx.Conn) error {
	if s.repairer == nil {
		return nil
	}
	err := s.repairer.Readable(ctx, sql)
	if err != nil && failure.ClassOf(err) != failure.Config {
		return err
	}
	if err != nil && !s.powerless {
		s.log.Warn("errors.on_loss is repair, and a loss could not be repaired", zap.Error(err), remedy(err))
	}
	s.powerless = err != nil
	return nil
}

// unmended is the loss beyond repair, for the reason err, or err.
func unmended(loss, err error) error {
	if failure.ClassOf(err) != failure.Loss {
		return err
	}
	return failure.Lossf(failure.RemedyOf(err)+"; or "+failure.RemedyOf(loss), "%w; errors.on_loss: repair cannot mend it: %w", loss, err)
}

// noteGap saves the checkpoint found, with the loss.
func (s *source) noteGap(ctx context.Context, h *acquired, loss error) error {
	noted := *h.found
	if noted.Lost == nil {
		noted.Lost = checkpoint.LostBy(loss)
	} else {
		lost := *noted.Lost
		noted.Lost = &lost
	}
	noted.Lost.Gap = h.gap
	h.found = &noted
	ctx, cancel := context.WithTimeout(ctx, s.limits.store)
	defer cancel()
	if err := s.kept.Save(ctx, noted); err != nil {
		return &storeError{fmt.Errorf("note a loss that is to be repaired: %w", err)}
	}
	return nil
}

// createAnew creates the slot, and holds its first snapshot.
func (s *source) createAnew(ctx context.Context, sql *pgx.Conn, repl *pgconn.PgConn, h *acquired, seen *checkpoint.Server) error {
	server, err := catalog.ReadServer(ctx, sql)
	if err != nil {
		return err
	}
	_, before, err := s.inspect(ctx, sql)
	if err != nil {
		return err
	}
	created := s.waitForCreation(ctx, repl)
	start, name, err := catalog.CreateSlot(ctx, repl, s.opts.Slot, server.Version, catalog.SlotOptions{ExportSnapshot: true, Failover: true})
	created()
	if err != nil {
		return yieldTo(err)
	}
	s.log.Info("created slot", zap.String("slot", s.opts.Slot), zap.Stringer("start", start))
	if h.snapshot, err = catalog.HoldSnapshot(ctx, s.opts.URL, name); err != nil {
		return err
	}
	now, _, err := s.inspect(ctx, sql)
	if err != nil {
		return err
	}
	if !now.Exists || now.Slot.ConfirmedFlush != start {
		return errPassed
	}
	id, err := catalog.Identify(ctx, repl)
	if err != nil {
		return err
	}
	identify(&now, id)
	*seen = now
	h.cp = s.checkpoint(now, start)
	h.cp.Epoch, h.cp.Snapshot, h.cp.Horizon, h.cp.Published = h.found.Epoch+1, false, before.Horizon, h.found.HasPublished()
	h.cp.Accepted = h.found.Accepted.Goes(start) // its rows may be older than the compared ones
	return nil
}

// lacking is the knowledge of the checkpoint found of the rows. A pending snapshot was to
// publish all of them. The ids of transactions count in the log that was read only.
func (h *acquired) lacking(held *catalog.HeldSnapshot) Lacking {
	of := Lacking{Snapshot: held.Name, Known: h.found.HasPublished()}
	if !h.gap.Diverged && !h.found.Snapshot {
		of.Before = h.found.Horizon
	}
	return of
}

// repair publishes the events missing before the slot's first position. No other process
// can write to Kafka.
func (s *source) repair(ctx context.Context, sql *pgx.Conn, h *acquired) error {
	if err := s.lead(ctx, sql, h); err != nil {
		return err
	}
	if err := s.compareEnds(ctx, h.found); err != nil {
		noted := *h.found // the gap stays: the slot does not fit this checkpoint
		noted.Epoch = h.cp.Epoch
		return s.noteLoss(ctx, noted, err)
	}
	h.cp.Doubtful = h.found.Doubtful
	if err := s.recallDoubtful(ctx, &h.cp); err != nil {
		return err
	}
	h.cp.Doubtful = nil // the records of each are compared
	s.health.repairing("events that a lost slot left out are looked for in Kafka, and published")
	if err := s.publicSnapshot(ctx, sql, h.snapshot); err != nil {
		return err
	}
	defer s.waitForSnapshot(ctx, sql.PgConn())()
	began := time.Now()
	done, err := s.repairer.Repair(ctx, sql, h.lacking(h.snapshot), s.publishMissing, s.health.observeRepair)
	if err != nil {
		lost := h.found.Lost
		return unmended(failure.Lossf(lost.Remedy, "%s", lost.Text), fmt.Errorf("repair: %w", err))
	}
	h.cp.Published = h.cp.Published || done.Published > 0
	s.log.Info("repaired: everything committed before the slot was made is published", zap.Stringer("lsn", h.cp.LSN),
		zap.Int64("rows", done.Rows), zap.Int64("records", done.Records), zap.Int64("published", done.Published), zap.Duration("took", time.Since(began)))
	return nil
}

// publishMissing writes a group of events. The deliverer has nothing to do: nothing was
// read of the stream.
func (s *source) publishMissing(ctx context.Context, items []delivery.Item) error {
	return s.deliverer.deliverMissing(ctx, items)
}

// deliverMissing delivers items of no stream, with exactly once in a transaction without
// a checkpoint: until the first checkpoint of the new slot, the comparison counts what
// was committed.
func (d *deliverer) deliverMissing(ctx context.Context, items []delivery.Item) error {
	d.current.Store(&flight{began: time.Now()})
	defer d.current.Store(nil)
	n, at := len(items), func(i int) *delivery.Item { return &items[i] }
	if d.transactions == nil {
		_, err := d.delivery.Deliver(ctx, d.sink, n, at)
		return err
	}
	if err := d.delivery.Await(ctx, d.transactions.Sink, n, at, func() error { return nil }); err != nil {
		return anew(err)
	}
	return anew(d.checkpointer.exclusive(ctx, func() error {
		_, err := d.delivery.Transact(ctx, d.transactions.Sink, n, at, unmarked)
		return err
	}))
}

// unmarked is a Kafka transaction without a checkpoint.
func unmarked(int) (*kgo.Record, error) { return nil, nil }

// observeRepair shows the progress of a repair; nil: it has ended.
func (h *Health) observeRepair(progress func() RepairStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repair = progress
}

// repairing notes why the session repairs.
func (h *Health) repairing(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pgErr, h.storeErr, h.claimErr, h.lacking = "", "", "", why
}

// repairStatus is nil without a repair. The caller holds mu.
func (h *Health) repairStatus() *RepairStatus {
	if h.repair == nil {
		return nil
	}
	st := h.repair()
	return &st
}

// repairAhead is for the collection of metrics: the records still to be read, and the
// events still to be published.
func (h *Health) repairAhead() (records, events int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if st := h.repairStatus(); st != nil {
		return st.RecordsAhead, st.Missing - st.Published
	}
	return 0, 0
}
