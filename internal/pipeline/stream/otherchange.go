package stream

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// otherChange drops a change that is no insert, as Debezium's Outbox Event
// Router does. Only updates are reported.
func (in *intake) otherChange(msg *wal.Message) error {
	if msg.Unread || !in.tables.has(&msg.Row) || in.knows(msg.Row.Position) {
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
	table, at := msg.Row.Relation.Namespace+"."+msg.Row.Relation.Name, msg.Row.Position.CommitLSN
	switch {
	case in.onUpdate == transform.UpdateFatal && !in.skip.Same(checkpoint.LandmarkOf(&msg.Row)):
		return failure.Configf(fmt.Sprintf("outbox rows are written once: stop whoever updates them; to get past this one, set event.on_update to warn, "+
			"or pass over its transaction with its events: `cdc-outbox setup --accept-gap --skip-to %s --yes`", at),
			"update of an outbox row of %s at %s", table, at)
	case in.onUpdate == transform.UpdateError:
		level = zap.ErrorLevel
	}
	in.digest.Note(digest.Kind{Level: level, Message: "update of an outbox row ignored", Detail: table},
		zap.String("table", table), zap.Stringer("lsn", at), zap.Uint32("xid", msg.Row.XID))
	return nil
}
