package stream

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// inspect asks the server for what the checkpoint is compared with, except who
// it is and how far its log goes. An error of class failure.Config says why the
// tables cannot be read through the publication.
func (s *source) inspect(ctx context.Context, sql *pgx.Conn) (checkpoint.Server, error) {
	var v catalog.View
	from := catalog.Source{Slot: s.opts.Slot, Publication: s.opts.Publication, Tables: s.opts.Tables, Needed: s.intake.router.Needed}
	if err := v.ReadSlot(ctx, sql, from); err != nil {
		return checkpoint.Server{}, err
	}
	if err := v.ReadPublication(ctx, sql, from); err != nil {
		return checkpoint.Server{}, err
	}
	seen := checkpoint.Server{Exists: v.Exists, Slot: v.Slot, Publication: v.Fingerprint, StoredInside: s.opts.Checkpoint.Store == store.StorePostgres}
	switch {
	case v.Publication == nil && v.Exists:
		return seen, from.LostPublication()
	case v.Publication == nil:
		return seen, nil
	case v.Unfit() != nil:
		return seen, v.Unfit()
	}
	oids := make([]uint32, len(v.Tables))
	for i, t := range v.Tables {
		oids[i] = t.OID
	}
	s.intake.oids.Store(&oids)
	return seen, nil
}

// sinceCheckpoint makes a loss of a publication or table that is not as it must
// be, where it was read before: rows may have been left out since. Messages are
// not: they pass by the publication.
func (s *source) sinceCheckpoint(cp *checkpoint.Checkpoint, err error) error {
	if cp == nil || failure.ClassOf(err) != failure.Config || len(s.opts.Tables) == 0 {
		return err
	}
	return failure.Lossf(strings.TrimSuffix(failure.RemedyOf(err), ";")+"; then "+catalog.AcceptGap,
		"%w; events committed after the checkpoint at %s may be left out", err, cp.LSN)
}

func identify(seen *checkpoint.Server, id catalog.Identity) {
	seen.SystemID, seen.Timeline, seen.Database, seen.CurrentLSN = id.SystemID, id.Timeline, id.Database, id.FlushLSN
}

// timelineSwitch finds where the server left the checkpoint's timeline, if it
// did.
func timelineSwitch(ctx context.Context, repl *pgconn.PgConn, stored *checkpoint.Checkpoint, seen *checkpoint.Server) (err error) {
	if stored == nil || stored.Timeline == seen.Timeline {
		return nil
	}
	seen.TimelineSwitch, err = catalog.TimelineSwitch(ctx, repl, seen.Timeline, stored.Timeline)
	return err
}
