package stream

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/sqltext"
)

// inspect asks the server for what the checkpoint is compared with, except its
// identity and the end of its log. An error of class failure.Config says why
// the tables cannot be read through the publication.
func (s *source) inspect(ctx context.Context, sql *pgx.Conn) (checkpoint.Server, error) {
	slot, exists, err := catalog.ReadSlot(ctx, sql, s.opts.Slot)
	if err != nil {
		return checkpoint.Server{}, err
	}
	pub, published, err := catalog.ReadPublication(ctx, sql, s.opts.Publication)
	if err != nil {
		return checkpoint.Server{}, err
	}
	seen := checkpoint.Server{Exists: exists, Slot: slot, StoredInside: s.opts.Checkpoint.Store == store.StorePostgres}
	if !published {
		if exists {
			return seen, s.missingPublication()
		}
		return seen, nil
	}
	seen.Publication = pub.Fingerprint(s.opts.Tables)
	failures, _, err := catalog.CheckTables(ctx, sql, pub, s.opts.Tables, s.intake.router.Needed)
	if len(failures) > 0 || err != nil {
		return seen, errors.Join(append(failures, err)...)
	}
	infos, err := catalog.ReadTables(ctx, sql, s.opts.Tables)
	if err != nil {
		return seen, err
	}
	oids := make([]uint32, len(infos))
	for i, t := range infos {
		oids[i] = t.OID
	}
	s.intake.oids.Store(&oids)
	return seen, nil
}

// sinceCheckpoint turns the error of an unfit publication or table into a loss,
// if it was read before: rows may have been left out since. Messages do not
// pass through the publication, so for them it is no loss.
func (s *source) sinceCheckpoint(cp *checkpoint.Checkpoint, err error) error {
	if cp == nil || failure.ClassOf(err) != failure.Config || len(s.opts.Tables) == 0 {
		return err
	}
	return failure.Lossf(strings.TrimSuffix(failure.RemedyOf(err), ";")+"; then "+acceptGap,
		"%w; events committed after the checkpoint at %s may be left out", err, cp.LSN)
}

const acceptGap = "`cdc-outbox setup --accept-gap --yes` goes on from where the slot stands or, where it is made anew, from the present; with --snapshot it first publishes the rows still in the outbox table"

func identify(seen *checkpoint.Server, id catalog.Identity) {
	seen.SystemID, seen.Timeline, seen.Database, seen.CurrentLSN = id.SystemID, id.Timeline, id.Database, id.FlushLSN
}

// timelineSwitch finds the position at which the server left the checkpoint's
// timeline, if it has left it.
func timelineSwitch(ctx context.Context, repl *pgconn.PgConn, stored *checkpoint.Checkpoint, seen *checkpoint.Server) (err error) {
	if stored == nil || stored.Timeline == seen.Timeline {
		return nil
	}
	seen.TimelineSwitch, err = catalog.TimelineSwitch(ctx, repl, seen.Timeline, stored.Timeline)
	return err
}

func (s *source) missingPublication() error {
	opts := s.opts
	if len(s.opts.Tables) == 0 {
		return failure.Configf("CREATE PUBLICATION "+sqltext.Name(opts.Publication)+"; (or `cdc-outbox setup`), then start again: "+
			"messages do not need it, and the slot keeps them; but up to PostgreSQL 17 the server cannot decode past changes of tables without it",
			"publication %q does not exist, but slot %q does", opts.Publication, opts.Slot)
	}
	return failure.Lossf(
		"rows committed while it is missing never reach the slot: "+acceptGap+"; it creates the publication",
		"publication %q does not exist, but slot %q does", opts.Publication, opts.Slot)
}

// errTwoServers ends a session whose connections lead to different servers, as
// in the middle of a failover: what one says of the slot is not true of the
// other.
var errTwoServers = errors.New("source.url led two connections to different servers, or to one that started or was promoted in between")

// errStandby ends a session with a standby. It may be behind, and its slot missing
// or not ready, while the primary has all; or it is about to be promoted, and is
// judged then. Nor is one read that has a slot of its own: its stream would go on
// over the promotion, with positions of another timeline than the checkpoint says.
var errStandby = &failure.Error{
	Class:  failure.Transient,
	Remedy: "add target_session_attrs=read-write to source.url, and list all hosts there",
	Err:    errors.New("the server is a standby, which is not read until it is promoted"),
}

// samePrimary returns the database that both connections lead to, on a server
// that is no standby.
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
