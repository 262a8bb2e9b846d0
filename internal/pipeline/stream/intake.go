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

// intake turns the stream's messages into items of the queue. It lives longer
// than a connection. After a reconnect resume tells it where the stream begins,
// and it passes over what the server sends again. One goroutine uses it.
type intake struct {
	router       *transform.Router
	queue        *queue
	tracker      *checkpoint.Locked
	checkpointer *checkpointer
	tables       outboxTables
	onUpdate     string
	skipRemedy   func(at pg.LSN) string // see Options
	metrics      intakeMetrics
	digest       *digest.Log

	changes atomic.Uint64 // all messages that arrived, except keepalives

	relation *pg.Relation            // of the last row that was taken in
	bound    map[uint32]*pg.Relation // those that the router has bound, by OID

	end      pg.LSN              // what ends at or before it was taken in
	landmark checkpoint.Landmark // of the last transaction with events among that
	cut      pg.Position         // of the last event taken in behind end; zero: none
	cutMark  checkpoint.Landmark // of its transaction
	recalled bool                // cut is the checkpoint's, and its event has not come again yet

	skip checkpoint.Landmark // the transaction that is passed over; zero: none

	bounds boundaries
	moves  transform.Moves // of the present transaction

	replay     *checkpoint.Replay // judges the stream until it shows something new; then nil
	recognised func()             // called once the log is known to be the same
}

func newIntake(p Parts, q *queue, t *checkpoint.Locked, k *checkpointer, lines *digest.Log) *intake {
	in := &intake{
		router: p.Router, queue: q, tracker: t, checkpointer: k,
		bound:    make(map[uint32]*pg.Relation),
		tables:   outboxTables{named: make(map[pg.Table]bool, len(p.Tables)), note: k.own, lose: k.remember},
		onUpdate: p.OnUpdate, skipRemedy: p.skipRemedy, metrics: p.Metrics, digest: lines,
		bounds: boundaries{Boundaries: p.Boundaries, limit: p.MaxBufferedBytes},
		moves:  transform.MovesWithin(p.MaxBufferedBytes),
	}
	for _, t := range p.Tables {
		in.tables.named[t] = true
	}
	return in
}

// consume takes messages from the stream until it ends or an event cannot be
// taken in. Once ctx has ended, it goes on to the end of the transaction, for as long as
// patience says then.
func (in *intake) consume(ctx context.Context, s *wal.Stream, patience func() time.Duration) error {
	defer in.queue.offer()
	reading := untilWhole(ctx, patience)
	defer reading.release()
	for !reading.at(in.within()) {
		if !s.Buffered() {
			in.queue.offer()
		}
		msg, err := s.Next(reading)
		if err != nil {
			return err
		}
		if err := in.accept(reading, msg); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// within reports whether a part of a transaction was taken in, and not all of it.
func (in *intake) within() bool { return !in.cut.IsZero() && !in.recalled }

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
	if again, err := in.repeated(msg.End); again || err != nil {
		return err
	}
	if in.recalled {
		return in.cutLost()
	}
	if err := in.oversized(); err != nil {
		return err
	}
	if err := in.sealed(msg.End, in.cutMark); err != nil {
		return fmt.Errorf("end of transaction %d: %w", msg.Row.XID, err)
	}
	in.end = msg.End
	if !in.cutMark.IsZero() {
		in.landmark = in.cutMark
		in.metrics.Transaction()
	}
	in.cut, in.cutMark = pg.Position{}, checkpoint.Landmark{}
	if in.tracker.InFlight() == 0 {
		in.checkpointer.moved()
	}
	return nil
}

// idle notes that there is nothing of ours up to pos.
func (in *intake) idle(pos pg.LSN) error {
	if err := in.tables.learn(pos); err != nil {
		return err
	}
	if again, err := in.repeated(pos); again || err != nil {
		return err
	}
	if err := in.tracker.Keepalive(pos); err != nil {
		return fmt.Errorf("idle position: %w", err)
	}
	in.end = max(in.end, pos)
	in.checkpointer.moved()
	return nil
}

// resume prepares for a stream. past is what checkpoint and slot say of the
// log; resume adds what this process has taken in. fn is called once it is
// certain that the stream is of the same log. The events up to cut were published.
func (in *intake) resume(past checkpoint.Past, cut checkpoint.Cut, fn func()) error {
	if !in.cut.IsZero() && in.cut.CommitLSN < past.Known { // another instance has read the rest of it
		if err := in.overtaken(past.Known); err != nil {
			return err
		}
		if err := in.tracker.Seal(past.Known, checkpoint.Landmark{}); err != nil {
			return fmt.Errorf("transaction at %s, which is over: %w", in.cut.CommitLSN, err)
		}
		in.cut, in.cutMark = pg.Position{}, checkpoint.Landmark{}
	}
	in.end = max(in.end, past.Known)
	in.moves.End() // a transaction that was read in part comes again from its beginning
	in.recall(cut)
	if in.landmark.Commit < past.Since.Commit {
		in.landmark = past.Since
	}
	past.Known, past.Since, past.Cut = in.end, in.landmark, in.cutMark
	in.replay = checkpoint.NewReplay(past)
	in.recognised = fn
	_, err := in.repeated(past.Start) // there may be nothing to repeat
	return err
}

// read is how far the log was read, a transaction that was cut included.
func (in *intake) read() pg.LSN {
	if in.cut.IsZero() {
		return in.end
	}
	return max(in.end, in.cut.CommitLSN+1) // the end is not known, but there is a record at this position
}

// repeated reports whether the server, at position pos, still sends what was
// read before. It has sent everything up to pos.
func (in *intake) repeated(pos pg.LSN) (bool, error) {
	if in.replay == nil {
		return false, nil
	}
	done, err := in.replay.Reached(pos)
	if err != nil || !done {
		return true, err
	}
	in.replay = nil
	in.recognised()
	return pos < in.end, nil
}

// knows reports whether the change at p was taken in on an earlier connection.
func (in *intake) knows(p pg.Position) bool {
	return in.replay != nil && p.CommitLSN < in.end || p.CommitLSN == in.cut.CommitLSN && p.Seq <= in.cut.Seq
}

func (in *intake) insert(ctx context.Context, msg *wal.Message) error {
	row := &msg.Row
	if msg.Unread {
		if err := in.tables.unread(row); err != nil {
			return err
		}
		return in.tables.pass(row)
	}
	if !in.tables.has(row) {
		return in.tables.pass(row)
	}
	if move := in.moves.Inserted(in.router, row); move != transform.NotMoved {
		if err := in.moved(row, move); move == transform.Moved || err != nil {
			return err
		}
	}
	if again, err := in.seen(row); again || err != nil {
		return err
	}
	if row.Relation != in.relation {
		in.bind(row)
	}
	ev, err := in.router.Route(row)
	if err := in.take(ctx, item{Item: delivery.Item{Event: ev}}, in.passOver(row, err), msg); err != nil {
		return err
	}
	in.took(row)
	return nil
}

// bind looks after the columns of a definition that is new: those that were
// detected before must not be gone, and those that are detected now not later.
func (in *intake) bind(row *pg.Row) {
	rel, commit := row.Relation, row.Position.CommitLSN
	in.relation = rel
	if in.bound[rel.OID] == rel {
		return
	}
	in.bound[rel.OID] = rel
	in.router.Expect(rel.OID, in.tables.owned.Missed(rel.OID, commit))
	detected := in.router.Detected(rel)
	in.router.Expect(rel.OID, detected)
	in.tables.know(in.tables.owned.Bound(rel.OID, detected, commit))
}

func (in *intake) message(ctx context.Context, msg *wal.Message) error {
	at := msg.Row.Position.CommitLSN
	if msg.NonTransactional {
		replaying := in.replay != nil
		if again, err := in.repeated(at); err != nil || again || replaying && at <= in.end {
			return err
		}
	} else if again, err := in.seen(&msg.Row); again || err != nil {
		return err
	}
	ev, err := in.router.RouteMessage(msg)
	if err := in.take(ctx, item{Item: delivery.Item{Event: ev}}, in.passOver(&msg.Row, err), msg); err != nil {
		return err
	}
	if msg.NonTransactional {
		return in.endNonTransactional(at)
	}
	in.took(&msg.Row)
	return nil
}

// passOver returns the router's result for the row, or a bad event if an
// operator ordered to pass over its transaction.
func (in *intake) passOver(row *pg.Row, routed error) error {
	if row.Position.CommitLSN != in.skip.Commit || !in.skip.Same(checkpoint.LandmarkOf(row)) {
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

// seen reports whether the event of the row was taken in already.
func (in *intake) seen(row *pg.Row) (bool, error) {
	if in.replay != nil {
		if err := in.replay.Transaction(checkpoint.LandmarkOf(row)); err != nil {
			return false, err
		}
	}
	if err := in.found(row.Position); err != nil {
		return false, err
	}
	return in.knows(row.Position), nil
}

// took notes that the event of the row is taken in.
func (in *intake) took(row *pg.Row) {
	in.cut, in.cutMark = row.Position, checkpoint.LandmarkOf(row)
}

// endNonTransactional ends what a message of no transaction is to the tracker: a
// transaction of its own, that no commit will end. The server sends it when it
// comes upon it in the log, between transactions. Its position is the end of its
// record, so that a stream from there on begins with what follows it; that may
// be the record of a commit, whose rows therefore do not count as taken in.
func (in *intake) endNonTransactional(end pg.LSN) error {
	if err := in.sealed(end, checkpoint.Landmark{}); err != nil {
		return fmt.Errorf("message of no transaction: %w", err)
	}
	in.end = end
	return nil
}

// take queues the item of an event that the router made, or could not make, of
// the message. Without a message, the item already counts its row's memory.
func (in *intake) take(ctx context.Context, it item, routed error, msg *wal.Message) error {
	bad, isBad := errors.AsType[*transform.BadEvent](routed)
	if routed != nil && !isBad {
		return routed
	}
	it.Bad, it.Size = bad, it.Event.Size()
	it.memory += itemMemory + it.Event.Memory()
	if msg != nil {
		it.chunk = msg.Chunk
		it.memory += msg.Retain() // the deliverer releases it
	}
	return in.enter(ctx, it)
}
