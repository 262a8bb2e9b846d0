package admin

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// recognised reports whether the slot has the log of the checkpoint: it sends
// again the last published transaction, and the transaction published in part.
// Then a run can go on from the checkpoint, and nothing is published twice.
// recognised confirms no position. An unreadable log is not recognised; other is
// the error of a log known to be another.
func (d *decision) recognised(ctx context.Context) (same bool, other error) {
	past := d.past()
	past.Cut = d.stored.Cut
	proof := past.Since.XID != 0 && past.Since.Commit >= past.Start || past.Cut.XID != 0 && past.Cut.Commit >= past.Start
	if !proof || past.Known > d.server.FlushLSN || past.Cut.XID != 0 && d.stored.Scope != d.scope() {
		return false, nil
	}
	stream, err := d.replayed(ctx, past)
	if err != nil {
		return false, nil
	}
	defer catalog.Close(stream)
	again := &skip{decision: d, past: past, replay: checkpoint.NewReplay(past), owned: d.owned(), moves: d.moves()}
	for {
		msg, err := stream.Next(ctx)
		if err != nil {
			return false, nil
		}
		at, err := again.replayOf(msg)
		if err != nil {
			return false, err
		}
		done, err := again.replay.Reached(at)
		if done || err != nil || at >= d.server.FlushLSN {
			return done, err
		}
	}
}

// replayOf recognises the replay of a message, and returns the position before
// which the server has sent everything, or 0.
func (s *skip) replayOf(msg *wal.Message) (at pg.LSN, err error) {
	row := &msg.Row
	switch msg.Kind {
	case wal.Insert:
		if !s.ours(row) {
			return row.Position.CommitLSN, nil
		}
		if s.moves.Inserted(s.router, row) == transform.Moved {
			s.replay.Other(checkpoint.LandmarkOf(row))
			return 0, nil
		}
		return row.Position.CommitLSN, s.replay.Transaction(checkpoint.LandmarkOf(row))
	case wal.Delete:
		if s.ours(row) && s.owned.Partitioned(row.Relation.OID) {
			s.moves.Deleted(s.router, row)
		}
	case wal.LogicalMessage:
		if !msg.NonTransactional {
			err = s.replay.Transaction(checkpoint.LandmarkOf(row))
		}
		return row.Position.CommitLSN, err
	case wal.Commit, wal.Keepalive:
		s.moves.End()
		return msg.End, nil
	}
	return 0, nil
}
