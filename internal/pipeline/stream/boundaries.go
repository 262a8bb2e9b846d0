package stream

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Boundaries keep each transaction of the database in one Kafka transaction.
// The intake holds a transaction's events in the queue until the commit, so that the
// deliverer sees whole transactions only.
type Boundaries struct {
	// Keep turns them on, and takes Transactions.
	Keep bool
	// Split publishes a transaction of more than MaxBufferedBytes in parts.
	// Otherwise such a transaction is an error.
	Split bool
	// Totals writes the header cdc-tx-total into the records of a transaction
	// published as a whole.
	Totals bool
}

// boundaries are the intake's knowledge of them.
type boundaries struct {
	Boundaries
	limit int64
	// The size so far of a transaction refused as too big.
	events int
	memory int64
}

// waits reports whether the item waits for the end of its transaction. A passed over
// event is seen by nobody, so the transaction may have any size.
func (b *boundaries) waits(it *item, extent checkpoint.Extent) bool {
	return b.Keep && extent != checkpoint.InParts && (it.Bad == nil || it.Bad.Reason != transform.ReasonPassedOver)
}

// enter puts the item into the queue once there is room.
func (in *intake) enter(ctx context.Context, it item) error {
	extent := in.extent(it.Event)
	if extent == checkpoint.TooBig {
		in.measure(it)
		return nil
	}
	err := in.queue.room(ctx, it.memory)
	if errors.Is(err, errOversized) {
		if extent = in.oversize(it.Event); extent == checkpoint.TooBig {
			in.measure(it)
			return nil
		}
		err = in.queue.room(ctx, it.memory)
	}
	if err != nil {
		it.chunk.Release(1)
		return err
	}
	it.ticket = in.tracker.Add() // not earlier: an event without room may never come again
	if in.bounds.waits(&it, extent) {
		in.queue.hold(it)
	} else {
		in.queue.push(it)
	}
	return nil
}

// extent is that of the event's transaction.
func (in *intake) extent(ev *transform.Event) checkpoint.Extent {
	switch {
	case ofSnapshot(ev): // rows of many transactions
		return checkpoint.InParts
	case ev.XID == 0: // no transaction
		return checkpoint.Whole
	}
	return in.reading.Published(ev.Position.CommitLSN)
}

// oversize decides about the event's transaction, held and filling the queue: go on in
// parts, or refuse it at its end.
func (in *intake) oversize(ev *transform.Event) checkpoint.Extent {
	if !in.bounds.Split {
		in.bounds.events, in.bounds.memory = in.queue.holds()
		in.reading.Publish(checkpoint.TooBig)
		return checkpoint.TooBig
	}
	in.reading.Publish(checkpoint.InParts)
	in.queue.part()
	in.metrics.Split()
	in.digest.Note(digest.Kind{Level: zap.WarnLevel, Message: "a transaction is larger than sink.kafka.max_buffered_bytes, so consumers may see a part of it"},
		zap.Stringer("lsn", ev.Position.CommitLSN), zap.Uint32("xid", ev.XID))
	return checkpoint.InParts
}

// measure counts an event of a refused transaction.
func (in *intake) measure(it item) {
	in.bounds.events++
	in.bounds.memory += it.memory
	it.Event.Release()
	it.chunk.Release(1)
}

// oversized is the error of a refused transaction, at its end.
func (in *intake) oversized(tx checkpoint.Transaction) error {
	enough := in.bounds.memory + in.bounds.memory/8 // the size varies a little
	return failure.Configf(fmt.Sprintf("raise sink.kafka.max_buffered_bytes to %d or more; or set sink.kafka.on_oversized_transaction: split, so that consumers may see a part of it", enough)+
		in.skipRemedy(tx.Commit),
		"transaction %s has %d events that take %d bytes, more than sink.kafka.max_buffered_bytes, %d, so sink.kafka.transaction_boundaries cannot keep it whole",
		tx.Landmark, in.bounds.events, in.bounds.memory, in.bounds.limit)
}

// overtaken is the error of a held transaction passed by the checkpoint: only another
// instance can have published the events.
func (in *intake) overtaken(known pg.LSN, cut checkpoint.Cut) error {
	n, _ := in.queue.holds()
	if n == 0 {
		return nil
	}
	return fmt.Errorf("the checkpoint is at %s, and %d events of transaction %s are not published yet: %w", known, n, cut.Landmark, ErrTakenOver)
}

// sealed hands over the ended transaction.
func (in *intake) sealed(end pg.LSN, landmark checkpoint.Landmark) error {
	if err := in.tracker.Seal(end, landmark); err != nil { // first: the checkpoint must name the end
		return err
	}
	in.queue.seal()
	return nil
}
