package stream

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// inspect asks the server for all to compare with the checkpoint, except identity
// and end of the log. If the tables cannot be read through the publication, error
// and view say why: see sinceCheckpoint.
func (s *source) inspect(ctx context.Context, sql *pgx.Conn) (checkpoint.Server, *catalog.View, error) {
	var v catalog.View
	if err := v.ReadSlot(ctx, sql, s.names()); err != nil {
		return checkpoint.Server{}, &v, err
	}
	if err := v.ReadPublication(ctx, sql, s.names()); err != nil {
		return checkpoint.Server{}, &v, err
	}
	seen, err := s.judge(&v)
	return seen, &v, err
}

// judge is inspect after all questions.
func (s *source) judge(v *catalog.View) (checkpoint.Server, error) {
	seen := checkpoint.Server{
		Name: s.opts.Slot, Scope: s.scope(), Key: s.opts.Checkpoint.Key, Exists: v.Exists, Slot: v.Slot,
		Publication: v.Fingerprint, PublicationName: s.opts.Publication,
		StoredInside: s.opts.Checkpoint.Store == store.StorePostgres,
	}
	switch {
	case v.Publication == nil && v.Exists:
		return seen, &catalog.MissingPublication{Name: s.opts.Publication, Slot: s.opts.Slot}
	case v.Publication == nil:
		return seen, nil
	case v.Unfit() != nil:
		return seen, v.Unfit()
	}
	s.tables.saw(&look{tables: v.Tables, from: v.Begin, at: v.End, schemasTold: v.SchemasTold})
	return seen, nil
}

// names are the configured ones.
func (s *source) names() catalog.Source {
	return catalog.Source{Slot: s.opts.Slot, Publication: s.opts.Publication, Tables: s.opts.Tables, Needed: s.router.Needed}
}

// known is the checkpoint to compare with the server, with the present names of the
// tables; nil: no checkpoint.
func (s *source) known(ctx context.Context, sql *pgx.Conn, seen checkpoint.Server, view *catalog.View) (*checkpoint.Checkpoint, error) {
	s.free = seen.Exists && !seen.Slot.Active
	found, err := s.load(ctx, seen.Slot.ConfirmedFlush)
	if err != nil || found == nil {
		return nil, err
	}
	confirmed := found.Confirmed(seen.Slot.ConfirmedFlush)
	if s.epoch != 0 && confirmed.LSN > found.LSN {
		return nil, ErrTakenOver // transactions in doubt are decided, but this process may have read their events, to write them again
	}
	return s.through(ctx, sql, s.follow(confirmed, view), seen.Publication)
}

// readable is the error of an unreadable publication or table, invalid from inspect,
// or of a slot without a checkpoint, if an operator has to decide.
func (s *source) readable(ctx context.Context, sql *pgx.Conn, found *checkpoint.Checkpoint, seen checkpoint.Server, view *catalog.View, invalid error) error {
	if invalid != nil {
		return s.sinceCheckpoint(ctx, sql, found, view, invalid)
	}
	if found == nil {
		if err := s.unread(ctx, sql, seen); err != nil {
			return err
		}
	}
	if found == nil || found.Made || found.Adopted {
		if err := s.renamed(ctx, sql, seen); err != nil {
			return err
		}
	}
	if !seen.Exists {
		return nil
	}
	return checkpoint.Undecided(seen.Slot, found, s.begun, s.opts.Snapshot, s.transactions != nil)
}

// sinceCheckpoint turns the error of an unfit publication or table into a loss, if
// either was read before: rows may have been left out since. Messages do not pass
// through the publication, so nothing of them is lost, nor by a mistaken name.
func (s *source) sinceCheckpoint(ctx context.Context, sql *pgx.Conn, cp *checkpoint.Checkpoint, v *catalog.View, err error) error {
	if _, missing := errors.AsType[*catalog.MissingPublication](err); missing {
		read := ""
		if cp != nil {
			if unread := cp.WithoutPublication(s.opts.Publication); unread != nil {
				return unread
			}
			read = cp.Publication
		}
		return s.names().MissingPublication(ctx, sql, read)
	}
	if cp == nil || v.Unfit() == nil || len(s.opts.Tables) == 0 {
		return err
	}
	return cp.Unread(v, func(oid uint32) (pg.Table, error) { return catalog.TableOf(ctx, sql, oid) })
}

// follow gives a checkpoint the present names of the tables, and logs a change of
// source.tables.
func (s *source) follow(found checkpoint.Checkpoint, v *catalog.View) *checkpoint.Checkpoint {
	now := found.Following(v.Tables)
	if s.followed == now.Scope { // a spare looks again and again
		return &now
	}
	s.followed = now.Scope
	if now.Scope != found.Scope {
		s.log.Info("outbox tables were renamed since the checkpoint; their events go on", zap.String("before", found.Scope), zap.String("now", now.Scope))
	}
	if now.Scope != s.scope() {
		s.log.Info("source.tables or source.mode was changed since the checkpoint; of tables that were not read before, what was committed before it is not published",
			zap.String("before", now.Scope), zap.String("now", s.scope()), zap.Stringer("checkpoint", now.LSN))
	}
	return &now
}

// through gives a checkpoint the present publication, if nothing is lost by the change.
func (s *source) through(ctx context.Context, sql *pgx.Conn, found *checkpoint.Checkpoint, publication string) (*checkpoint.Checkpoint, error) {
	now, err := found.Through(s.opts.Publication, publication, s.names().PublishedBefore(ctx, sql))
	if err == nil && now.PublicationName != found.PublicationName && !s.switched { // a spare looks again and again
		s.switched = true
		s.log.Info("reading through another publication, which has published the tables since before the checkpoint",
			zap.String("before", found.PublicationName), zap.String("now", s.opts.Publication), zap.Stringer("checkpoint", found.LSN))
	}
	return &now, err
}

func identify(seen *checkpoint.Server, id catalog.Identity) {
	seen.SystemID, seen.Timeline, seen.Database, seen.CurrentLSN = id.SystemID, id.Timeline, id.Database, id.FlushLSN
}

// timelineSwitch finds the position where the server left the checkpoint's timeline,
// if ever.
func timelineSwitch(ctx context.Context, repl *pgconn.PgConn, stored *checkpoint.Checkpoint, seen *checkpoint.Server) (err error) {
	if stored == nil || stored.Timeline == seen.Timeline {
		return nil
	}
	seen.TimelineSwitch, err = catalog.TimelineSwitch(ctx, repl, seen.Timeline, stored.Timeline)
	return err
}

// errTwoServers ends a session with connections to different servers, as during a
// failover: the slots differ.
var errTwoServers = errors.New("source.url led two connections to different servers, or to one that started or was promoted in between")

// errStandby ends a session with a standby. A standby may be behind, and its slot
// missing or not ready, although the primary has everything. The comparison is for
// after the promotion. A standby with a slot of its own is not read either: the
// stream would go on over the promotion, with positions of another timeline than
// the checkpoint's.
var errStandby = &failure.Error{
	Class:  failure.Transient,
	Remedy: "add target_session_attrs=read-write to source.url, and list all hosts there",
	Err:    errors.New("the server is a standby, which is not read until it is promoted"),
}

// samePrimary returns the database of both connections. Two servers, or a standby,
// are an error.
func samePrimary(ctx context.Context, sql *pgx.Conn, repl *pgconn.PgConn) (database string, err error) {
	a, err := catalog.ReadInstance(ctx, sql.PgConn())
	if err != nil {
		return "", err
	}
	b, err := catalog.ReadInstance(ctx, repl)
	switch {
	case err != nil:
		return "", err
	case a != b:
		return "", errTwoServers
	case a.InRecovery:
		return "", errStandby
	}
	return a.Database, nil
}
