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
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
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
	digest   *digest.Log

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
		return in.insert(ctx, &msg.Row, msg.Chunk)
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

func (in *intake) insert(ctx context.Context, row *wal.Row, chunk *wal.Chunk) error {
	if !in.concerns(row) {
		return nil
	}
	ev, err := in.router.Route(row)
	if err := in.take(ctx, ev, err, chunk); err != nil {
		return err
	}
	in.last, in.taken = row.Position, true
	return nil
}

func (in *intake) message(ctx context.Context, msg *wal.Message) error {
	if in.knows(msg.Row.Position) {
		return nil
	}
	ev, err := in.router.RouteMessage(msg)
	if err := in.take(ctx, ev, err, msg.Chunk); err != nil {
		return err
	}
	if !msg.Loose { // its position may be that of the next transaction's first change
		in.last, in.taken = msg.Row.Position, true
	}
	return nil
}

// take queues the event that the router made, or could not make, of a row or
// message in the chunk.
func (in *intake) take(ctx context.Context, ev *transform.Event, routed error, chunk *wal.Chunk) error {
	bad, isBad := errors.AsType[*transform.BadEvent](routed)
	if routed != nil && !isBad {
		return routed
	}
	if ev.Warning != "" {
		in.metrics.Warned(ev.Warning)
		in.digest.Note(digest.Kind{Level: zap.WarnLevel, Message: "event is published, but not as one would expect", Detail: string(ev.Warning)},
			zap.String("warning", string(ev.Warning)), zap.String("table", ev.Table), zap.String("event_id", string(ev.ID)),
			zap.Stringer("lsn", ev.Position.CommitLSN), zap.Uint32("seq", ev.Position.Seq))
	}
	it := item{event: ev, chunk: chunk, bad: bad, ticket: in.tracker.Add(), size: ev.Size()}
	chunk.Retain() // delivery releases it
	if err := in.queue.push(ctx, it); err != nil {
		chunk.Release(1)
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
	level := zap.WarnLevel
	switch in.onUpdate {
	case config.UpdateFatal:
		return failure.Configf("outbox rows are written once: stop whoever updates them, or set event.on_update to warn",
			"update of an outbox row of %s.%s at %s", msg.Row.Relation.Namespace, msg.Row.Relation.Name, msg.Row.Position.CommitLSN)
	case config.UpdateError:
		level = zap.ErrorLevel
	}
	table := msg.Row.Relation.Namespace + "." + msg.Row.Relation.Name
	in.digest.Note(digest.Kind{Level: level, Message: "update of an outbox row ignored", Detail: table},
		zap.String("table", table), zap.Stringer("lsn", msg.Row.Position.CommitLSN), zap.Uint32("xid", msg.Row.XID))
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
