package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/config"
	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// intake turns the stream's messages into items of the queue. It lives longer
// than a connection: after a reconnect the server repeats at most the
// transaction that was cut, and intake passes over what it took in already.
// One goroutine uses it.
type intake struct {
	router   *transform.Router
	queue    *queue
	tracker  *checkpoint.Locked
	keeper   *keeper
	tables   map[wal.Table]bool
	onUpdate string
	metrics  Metrics
	log      *zap.Logger

	relation *wal.Relation // of the last row
	outbox   bool          // whether relation is one of tables
	last     wal.Position  // of the last row taken in
	taken    bool          // whether last is set
	end      wal.LSN       // of the last transaction taken in whole
}

// consume takes messages from the stream until it ends or an event cannot be
// taken in.
func (in *intake) consume(ctx context.Context, s *wal.Stream) error {
	for {
		msg, err := s.Next(ctx)
		if err != nil {
			return err
		}
		if err := in.accept(ctx, msg); err != nil {
			return err
		}
	}
}

func (in *intake) accept(ctx context.Context, msg *wal.Message) error {
	switch msg.Kind {
	case wal.Insert:
		return in.insert(ctx, &msg.Row, msg)
	case wal.LogicalMessage:
		return in.message(ctx, msg)
	case wal.Commit:
		if err := in.tracker.Seal(msg.End); err != nil {
			return fmt.Errorf("end of transaction %d: %w", msg.Row.XID, err)
		}
		in.end = msg.End
		if in.tracker.InFlight() == 0 {
			in.keeper.idle()
		}
	case wal.Idle:
		if err := in.tracker.Idle(msg.End); err != nil {
			return fmt.Errorf("idle position: %w", err)
		}
		in.end = max(in.end, msg.End)
		in.keeper.idle()
	case wal.Update, wal.Delete, wal.Truncate:
		return in.otherChange(msg)
	}
	return nil
}

// concerns reports whether the row is of an outbox table and not taken in yet.
func (in *intake) concerns(row *wal.Row) bool {
	if row.Relation != in.relation {
		in.relation = row.Relation
		in.outbox = in.tables[wal.Table{Schema: row.Relation.Namespace, Name: row.Relation.Name}]
	}
	return in.outbox && !in.knows(row.Position)
}

// knows reports whether what is at p was taken in on an earlier connection.
func (in *intake) knows(p wal.Position) bool { return in.taken && p.Compare(in.last) <= 0 }

// insert takes in a row of the message, or of a snapshot, with no message.
func (in *intake) insert(ctx context.Context, row *wal.Row, msg *wal.Message) error {
	if !in.concerns(row) {
		return nil
	}
	ev, err := in.router.Route(row)
	it := item{event: ev}
	if msg == nil {
		it.memory = row.Size()
	}
	if err := in.take(ctx, it, err, msg); err != nil {
		return err
	}
	in.last, in.taken = row.Position, true
	return nil
}

func (in *intake) message(ctx context.Context, msg *wal.Message) error {
	at := msg.Row.Position
	if in.knows(at) || msg.Loose && at.CommitLSN <= in.end {
		return nil
	}
	ev, err := in.router.RouteMessage(msg)
	if err := in.take(ctx, item{event: ev}, err, msg); err != nil {
		return err
	}
	if msg.Loose {
		return in.endLoose(at.CommitLSN)
	}
	in.last, in.taken = at, true
	return nil
}

// endLoose ends what a message of no transaction is to the tracker: a
// transaction of its own, that no commit will end. The server sends it when it
// comes upon it in the log, between transactions. Its position is the end of its
// record, so that a stream from there on begins with what follows it; that may
// be the record of a commit, whose rows therefore do not count as taken in.
func (in *intake) endLoose(end wal.LSN) error {
	if err := in.tracker.Seal(end); err != nil {
		return fmt.Errorf("message of no transaction: %w", err)
	}
	in.end = end
	return nil
}

// take queues the item of an event that the router made, or could not make, of
// the message. Without one, the item already has its row's memory.
func (in *intake) take(ctx context.Context, it item, routed error, msg *wal.Message) error {
	bad, isBad := errors.AsType[*transform.BadEvent](routed)
	if routed != nil && !isBad {
		return routed
	}
	if it.event.Warning != "" {
		in.metrics.Warned(it.event.Warning)
	}
	it.bad, it.ticket, it.size = bad, in.tracker.Add(), it.event.Size()
	it.memory += itemMemory + it.event.Memory()
	if msg != nil {
		it.chunk = msg.Chunk
		it.memory += msg.Retain() // delivery releases it
	}
	if err := in.queue.push(ctx, it); err != nil {
		it.chunk.Release(1)
		in.tracker.Done(it.ticket, 1) // never queued: the repetition adds it again
		return err
	}
	return nil
}

// otherChange drops a change that is no insert, as Debezium's Outbox Event
// Router does; only updates are worth a word.
func (in *intake) otherChange(msg *wal.Message) error {
	if !in.concerns(&msg.Row) {
		return nil
	}
	switch msg.Kind {
	case wal.Delete:
		in.metrics.Ignored("delete")
		return nil
	case wal.Truncate:
		in.metrics.Ignored("truncate")
		return nil
	}
	in.metrics.Ignored("update")
	fields := []zap.Field{
		zap.String("table", msg.Row.Relation.Namespace+"."+msg.Row.Relation.Name),
		zap.Stringer("lsn", msg.Row.Position.CommitLSN),
	}
	switch in.onUpdate {
	case config.UpdateFatal:
		return failure.Configf("outbox rows are written once: stop whoever updates them, or set event.on_update to warn",
			"update of an outbox row of %s.%s at %s", msg.Row.Relation.Namespace, msg.Row.Relation.Name, msg.Row.Position.CommitLSN)
	case config.UpdateError:
		in.log.Error("update of an outbox row ignored", fields...)
	default:
		in.log.Warn("update of an outbox row ignored", fields...)
	}
	return nil
}

// snapshot takes in the rows that are in the tables now, as one transaction
// that ends at lsn, and waits until all of them are acked. It returns their
// number.
func (in *intake) snapshot(ctx context.Context, sql *pgx.Conn, tables []wal.Table, name string, lsn wal.LSN) (int, error) {
	next := wal.Position{CommitLSN: lsn}
	in.taken = false // a repetition starts from the first row
	for _, t := range tables {
		rel, ok, err := wal.ReadColumns(ctx, sql, t)
		if err != nil {
			return 0, err
		}
		if !ok {
			return 0, fmt.Errorf("table %s does not exist", t)
		}
		from := wal.Snapshot{Name: name, Table: t, Relation: rel, Position: next}
		err = wal.ReadSnapshot(ctx, sql, from, func(row *wal.Row) error {
			next.Seq++
			return in.insert(ctx, row, nil)
		})
		if err != nil {
			return 0, err
		}
	}
	if err := in.tracker.Seal(lsn); err != nil {
		return 0, err
	}
	in.taken = false // the stream's first transaction may have the position lsn too
	return int(next.Seq), in.settled(ctx)
}

// settled waits until everything taken in is acked.
func (in *intake) settled(ctx context.Context) error {
	for in.tracker.InFlight() > 0 {
		if err := backoff.Sleep(ctx, settlePoll); err != nil {
			return err
		}
	}
	return nil
}

const settlePoll = 20 * time.Millisecond
