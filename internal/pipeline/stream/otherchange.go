package stream

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// otherChange drops a change other than an insert, as Debezium's Outbox Event Router
// does. Only updates are reported.
func (in *intake) otherChange(msg *wal.Message) error {
	row := &msg.Row
	if msg.Unread {
		return in.tables.unread(row)
	}
	if !in.tables.has(row) {
		return nil
	}
	if msg.Kind == wal.Delete && in.tables.partitioned(row) {
		in.moves.Deleted(in.router, row)
	}
	if in.reading.Has(row.Position) {
		return nil
	}
	switch msg.Kind {
	case wal.Delete:
		in.metrics.Ignored("delete")
	case wal.Truncate:
		in.metrics.Ignored("truncate")
	case wal.Update:
		return in.updated(row, "update of an outbox row")
	}
	return nil
}

// moved reports a row moved by its transaction to another partition: an update, and
// no event. A row perhaps moved is published: better twice than never.
func (in *intake) moved(row *pg.Row, move transform.Move) error {
	if move == transform.Moved {
		in.reading.Passed(row) // an event under another max_buffered_bytes
	}
	switch {
	case in.reading.Has(row.Position):
		return nil
	case move == transform.Moved:
		return in.updated(row, "move of an outbox row to another partition")
	}
	return in.maybeMoved(row)
}

// updated drops a change of an outbox row, or refuses it.
func (in *intake) updated(row *pg.Row, change string) error {
	in.metrics.Ignored("update")
	if in.refuses(row) {
		return failure.Configf("outbox rows are written once: stop whoever changes them; "+in.pastUpdate(row),
			"%s of %s at %s", change, nameOf(row), row.Position.CommitLSN)
	}
	in.noteUpdate(row, change+" ignored")
	return nil
}

// maybeMoved reports a row perhaps there before.
func (in *intake) maybeMoved(row *pg.Row) error {
	if in.refuses(row) {
		return failure.Configf("raise sink.kafka.max_buffered_bytes, with which more are remembered, and move fewer rows in one transaction; "+in.pastUpdate(row),
			"a transaction deleted more than %d outbox rows of %s and then inserted others, which may be the same, at %s", in.moves.Limit, nameOf(row), row.Position.CommitLSN)
	}
	in.noteUpdate(row, "a transaction deleted more outbox rows than are remembered and inserted others: those that it moved are published again",
		zap.Int("remembered", in.moves.Limit), zap.String("remedy", "move fewer rows in one transaction, or raise sink.kafka.max_buffered_bytes"))
	return nil
}

// refuses reports whether an update of the row ends the pipeline.
func (in *intake) refuses(row *pg.Row) bool {
	return in.onUpdate == transform.UpdateFatal && !in.reading.Skips(row)
}

// pastUpdate is the way past a refused update.
func (in *intake) pastUpdate(row *pg.Row) string {
	return "to get past this one, set event.on_update to warn" +
		in.skipRemedy(row.Position.CommitLSN)
}

func (in *intake) noteUpdate(row *pg.Row, text string, more ...zap.Field) {
	level := zapcore.WarnLevel
	if in.onUpdate == transform.UpdateError {
		level = zapcore.ErrorLevel
	}
	in.digest.Note(digest.Kind{Level: level, Message: text, Detail: nameOf(row)}, append(more,
		zap.String("table", nameOf(row)), zap.Stringer("lsn", row.Position.CommitLSN), zap.Uint32("xid", row.XID))...)
}

// nameOf is the name of a row's table.
func nameOf(row *pg.Row) string { return row.Relation.Namespace + "." + row.Relation.Name }
