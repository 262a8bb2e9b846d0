package stream

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// intake turns the stream's messages into items of the queue. An intake outlives
// connections. After a reconnect, resume tells where the stream begins, and the
// intake passes over repeated messages. A single goroutine uses an intake.
//
// The road of a row: of an outbox table, an event, not read before; the router makes
// a record, and the item enters the queue once there is room.
type intake struct {
	router       *transform.Router
	queue        *queue
	tracker      *checkpoint.Locked
	checkpointer *checkpointer
	initial      *initial
	tables       *outboxTables
	visibility   *visibility // nil: events go at once
	onUpdate     string
	takes        func(bytes int) bool   // see Options
	skipRemedy   func(at pg.LSN) string // see Options
	metrics      intakeMetrics
	digest       *digest.Log

	changes atomic.Uint64 // all arrived messages, except keepalives

	relation *pg.Relation            // of the last row taken in
	bound    map[uint32]*pg.Relation // by the router, by OID

	reading checkpoint.Reading
	bounds  boundaries
	moves   transform.Moves // of the present transaction

	recognised func() error // called at each position known to be of the log read before
	// describe asks the catalogs for the columns of a table in the stream; nil where the
	// router does not want to know.
	describe func(ctx context.Context, oid uint32) (*pg.Relation, error)
}

func newIntake(p Parts, tables *outboxTables, q *queue, t *checkpoint.Locked, k *checkpointer, lines *digest.Log) *intake {
	return &intake{
		router: p.Router, queue: q, tracker: t, checkpointer: k, initial: k.initial,
		bound:    make(map[uint32]*pg.Relation),
		tables:   tables,
		onUpdate: p.OnUpdate, takes: p.Takes, skipRemedy: p.skipRemedy, metrics: p.Metrics, digest: lines,
		bounds: boundaries{Boundaries: p.Boundaries, limit: p.MaxBufferedBytes},
		moves:  transform.MovesWithin(p.MaxBufferedBytes),

		recognised: func() error { return nil },
	}
}

// arrived is the number of arrived messages, keepalives apart.
func (in *intake) arrived() uint64 { return in.changes.Load() }

// furthest is how far the log was read, a cut transaction included.
func (in *intake) furthest() pg.LSN { return in.reading.Furthest() }

// landmark is the commit of the last transaction with events read to its end.
func (in *intake) landmark() pg.LSN { return in.reading.Landmark().Commit }

// within reports whether a transaction was read only in part.
func (in *intake) within() bool { return in.reading.Within() }

// beginAt makes everything before the position count as dealt with.
func (in *intake) beginAt(position pg.LSN) error {
	if err := in.tracker.Keepalive(position); err != nil {
		return fmt.Errorf("start position: %w", err)
	}
	return nil
}

// consume takes messages from the stream until the stream ends or an event cannot be
// taken in. After the end of ctx, consume goes on to the end of the transaction, for at
// most the patience of that moment.
func (in *intake) consume(ctx context.Context, s *wal.Stream, patience func() time.Duration) error {
	defer in.queue.offer()
	until := untilWhole(ctx, patience)
	defer until.release()
	for !until.at(in.reading.Within()) {
		if !s.Buffered() {
			in.queue.offer()
		}
		msg, err := s.Next(until)
		if err != nil {
			return err
		}
		if err := in.accept(until, msg); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (in *intake) accept(ctx context.Context, msg *wal.Message) error {
	if msg.Kind != wal.Keepalive {
		in.changes.Add(1)
	}
	switch msg.Kind {
	case wal.Insert:
		return in.insert(ctx, msg)
	case wal.LogicalMessage:
		return in.message(ctx, msg)
	case wal.Commit:
		return in.commit(msg)
	case wal.Keepalive:
		return in.idle(msg.End)
	case wal.Update, wal.Delete, wal.Truncate:
		return in.otherChange(msg)
	case wal.Abort:
		in.digest.Note(digest.Kind{Level: zap.InfoLevel, Message: "the server announced a transaction that was rolled back; nothing of it was sent"})
	}
	return nil
}

// commit ends a transaction.
func (in *intake) commit(msg *wal.Message) error {
	if err := in.tables.learn(msg.End); err != nil {
		return err
	}
	in.moves.End()
	tx, again, err := in.reading.Commit(msg.End)
	if err = in.recognise(err); again || err != nil {
		return err
	}
	if tx.Extent == checkpoint.TooBig {
		return in.oversized(tx)
	}
	if err := in.sealed(msg.End, tx.Landmark); err != nil {
		return fmt.Errorf("end of transaction %d: %w", msg.Row.XID, err)
	}
	if !tx.IsZero() {
		in.metrics.Transaction()
	}
	if in.tracker.InFlight() == 0 {
		in.checkpointer.moved()
	}
	return nil
}

// idle notes that no event of ours is left up to pos.
func (in *intake) idle(pos pg.LSN) error {
	if err := in.tables.learn(pos); err != nil {
		return err
	}
	again, err := in.reading.Idle(pos)
	if err = in.recognise(err); again || err != nil {
		return err
	}
	if err := in.tracker.Keepalive(pos); err != nil {
		return fmt.Errorf("idle position: %w", err)
	}
	in.checkpointer.moved()
	return nil
}

// resume prepares for a stream. past is the knowledge of checkpoint and slot; events
// up to its cut were published.
func (in *intake) resume(past checkpoint.Past) error {
	if cut := in.reading.Cut(); !cut.IsZero() && cut.Commit < past.Known { // another instance has read the rest
		if err := in.overtaken(past.Known, cut); err != nil {
			return err
		}
		if err := in.tracker.Seal(past.Known, checkpoint.Landmark{}); err != nil {
			return fmt.Errorf("transaction at %s, which is over: %w", cut.Commit, err)
		}
	}
	in.moves.End() // a transaction read in part comes again from its beginning
	return in.recognise(in.reading.Resume(past))
}

// recognise calls recognised once the log is known to be the same, unless the step
// before failed with err.
func (in *intake) recognise(err error) error {
	if err != nil || !in.reading.Recognised() {
		return err
	}
	return in.recognised()
}

func (in *intake) insert(ctx context.Context, msg *wal.Message) error {
	row := &msg.Row
	if ours, err := in.tables.judge(msg); !ours || err != nil {
		return err
	}
	if known, err := in.known(row); known || err != nil {
		return err
	}
	if row.Relation != in.relation {
		if err := in.bind(ctx, row); err != nil {
			return err
		}
	}
	ev, err := in.router.Route(row)
	return in.take(ctx, ev, err, msg)
}

// known reports whether a row of ours is no new event: moved, or read before.
func (in *intake) known(row *pg.Row) (bool, error) {
	if move := in.moves.Inserted(in.router, row); move != transform.NotMoved {
		if err := in.moved(row, move); move == transform.Moved || err != nil {
			return true, err
		}
	}
	return in.reading.Row(row)
}

// bind looks after the columns of a new definition: columns detected before must
// not be gone, nor columns detected now be gone later.
func (in *intake) bind(ctx context.Context, row *pg.Row) error {
	rel, commit := row.Relation, row.Position.CommitLSN
	if in.bound[rel.OID] == rel {
		in.relation = rel
		return nil
	}
	if in.describe != nil {
		known, err := in.describe(ctx, rel.OID)
		if err != nil {
			return err
		}
		in.router.Describe(known)
	}
	in.relation = rel
	in.bound[rel.OID] = rel
	in.router.Expect(rel.OID, in.tables.missed(rel.OID, commit))
	detected := in.router.Detected(rel)
	in.router.Expect(rel.OID, detected)
	in.tables.bound(rel.OID, detected, commit)
	return nil
}

func (in *intake) message(ctx context.Context, msg *wal.Message) error {
	var again bool
	var err error
	if msg.NonTransactional {
		again, err = in.reading.Alone(msg.Row.Position.CommitLSN)
		err = in.recognise(err)
	} else {
		again, err = in.reading.Row(&msg.Row)
	}
	if again || err != nil {
		return err
	}
	ev, err := in.router.RouteMessage(msg)
	return in.take(ctx, ev, err, msg)
}

// take puts the message's event into the queue, with the router's error if any. From
// then on the event counts as read.
func (in *intake) take(ctx context.Context, ev *transform.Event, routed error, msg *wal.Message) error {
	it := item{chunk: msg.Chunk}
	if err := it.carry(ev, in.passOver(&msg.Row, routed), in.takes); err != nil {
		return err
	}
	in.visibility.follow()    // a new event is beyond all that was compared
	it.memory += msg.Retain() // the deliverer releases it
	if err := in.enter(ctx, it); err != nil {
		return err
	}
	if msg.NonTransactional {
		return in.endNonTransactional(msg.Row.Position.CommitLSN)
	}
	in.reading.Took(&msg.Row)
	return nil
}

// passOver returns the router's result for the row, or a bad event if an
// operator ordered to pass over its transaction.
func (in *intake) passOver(row *pg.Row, routed error) error {
	if !in.reading.Skips(row) {
		return routed
	}
	if routed == nil {
		return &transform.BadEvent{Reason: transform.ReasonPassedOver, Err: errPassedOver}
	}
	if bad, isBad := errors.AsType[*transform.BadEvent](routed); isBad {
		return &transform.BadEvent{Reason: transform.ReasonPassedOver, Err: fmt.Errorf("%w: %w", errPassedOver, bad)}
	}
	return routed
}

var errPassedOver = errors.New("an operator passed over its transaction")

// endNonTransactional seals a message of no transaction: the tracker counts it as a
// transaction, and no commit will come.
func (in *intake) endNonTransactional(end pg.LSN) error {
	if err := in.sealed(end, checkpoint.Landmark{}); err != nil {
		return fmt.Errorf("message of no transaction: %w", err)
	}
	in.reading.TookAlone(end)
	return nil
}

// carry gives the item the event, and returns the router's error unless the event is
// bad.
func (it *item) carry(ev *transform.Event, routed error, takes func(bytes int) bool) error {
	if routed != nil {
		bad, isBad := errors.AsType[*transform.BadEvent](routed)
		if !isBad {
			return routed
		}
		it.Bad = bad
	}
	it.Event, it.Size, it.memory = ev, delivery.SizeOf(ev, takes), itemMemory+ev.Memory()
	return nil
}
