package stream

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

const (
	// lookTimeout bounds one look, so that a dead connection is noticed.
	lookTimeout = 10 * time.Second
	// lastLook bounds the look at a stop.
	lastLook = time.Second
	// standbysEvery is how many looks there are to one for instances that stand by.
	standbysEvery = 5
	// shutdownGrace is how long we let a stopping server wait for us. A fast
	// shutdown waits for ever for a walsender whose client replies but cannot
	// confirm (failure mode 4).
	shutdownGrace = 3 * time.Second
)

// monitor watches, beside the stream and on a connection of its own, what the
// stream cannot show: a slot that is about to be lost, a publication that leaves
// rows out, a server that wants to stop. cp is what the session began with. It
// returns why the session must end, or nil when ctx ended it.
func (s *source) monitor(ctx context.Context, cp checkpoint.Checkpoint) error {
	var conn *pgx.Conn
	defer func() { catalog.Close(conn) }()
	blind, looks := false, 0
	var end pg.LSN // of the log, at the last look
	for backoff.Sleep(ctx, s.tenure.often(s.limits.monitor)) == nil {
		fresh, flushed, err := s.look(ctx, conn, cp)
		conn = fresh
		if err != nil {
			s.health.unseen()
			s.unasked()
		}
		switch {
		case err == nil:
			blind = false
			s.whole.Store(uint64(end)) // this look would have shown a change before that
			end = flushed
			if looks%standbysEvery == 0 {
				s.health.standbysAre(catalog.ReadStandbys(ctx, conn, s.opts.Slot))
			}
			looks++
		case ctx.Err() != nil:
		case errors.Is(err, catalog.ErrShutdown):
			_ = backoff.Sleep(ctx, shutdownGrace)
			return fmt.Errorf("leave the slot so that the server can stop: %w", err)
		case failure.ClassOf(err) != failure.Transient && conn != nil:
			return err
		case !blind: // only this connection is broken; the stream may be well
			blind = true
			s.log.Warn("cannot watch slot and publication beside the stream, will retry", zap.Error(err))
		}
	}
	if s.stopping() { // the next start would not know of rows that were passed over since the last look
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
		defer cancel()
		conn, _, _ = s.look(ending, conn, cp)
	}
	return nil
}

// look checks the server, on conn or, where that is broken or nil, on a new
// connection. It returns the connection to use next, nil if there is none, and
// the end of the log.
func (s *source) look(ctx context.Context, conn *pgx.Conn, cp checkpoint.Checkpoint) (*pgx.Conn, pg.LSN, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	terminated := false
	if conn != nil {
		if err := s.ask(ctx, conn); err != nil {
			terminated = errors.Is(catalog.Classify(err), catalog.ErrTerminated)
			catalog.Close(conn)
			conn = nil
		}
	}
	if conn == nil {
		fresh, err := s.connectBeside(ctx, cp)
		if err != nil {
			return nil, 0, stopping(err, terminated)
		}
		conn = fresh
		if err := s.ask(ctx, conn); err != nil {
			return conn, 0, err
		}
	}
	flushed, err := s.check(ctx, conn, cp)
	return conn, flushed, err
}

// stopping decides whether the server is about to stop, from the error of a
// connection beside a running stream. A server that refuses connections while
// it streams is stopping, or about to restart; both end the stream. If nobody
// answers at all, the network may be the reason, unless an administrator's
// command has just ended our connection.
func stopping(err error, terminated bool) error {
	if errors.Is(err, catalog.ErrUnavailable) || terminated && errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: %w", catalog.ErrShutdown, err)
	}
	return err
}

// connectBeside opens a connection to the server of the stream that began with
// cp. By now the URL may lead to another server: it may list several hosts, or
// its address may have moved in a failover.
func (s *source) connectBeside(ctx context.Context, cp checkpoint.Checkpoint) (*pgx.Conn, error) {
	conn, err := catalog.ConnectBeside(ctx, s.opts.URL, s.server)
	if err != nil {
		return nil, err
	}
	server, err := catalog.ReadServer(ctx, conn)
	if err == nil && (server.SystemID != cp.SystemID || server.Timeline != cp.Timeline) {
		err = fmt.Errorf("connected to system identifier %s on timeline %d, the stream is from %s on timeline %d",
			server.SystemID, server.Timeline, cp.SystemID, cp.Timeline)
	}
	if err == nil {
		err = catalog.ShowReader(ctx, conn, s.opts.Slot)
	}
	if err != nil {
		catalog.Close(conn)
		return nil, err
	}
	s.warnOfDefects(server.Version)
	return conn, nil
}

// warnOfDefects warns once of what is wrong with the server's version.
func (s *source) warnOfDefects(version int) {
	if s.judged.Swap(int64(version)) == int64(version) {
		return
	}
	for _, defect := range catalog.Defects(version) {
		text, remedy := defect.Describe(version)
		s.log.Warn(text, zap.String("remedy", remedy))
	}
}

// check compares the server with the checkpoint once more, and publishes what
// the metrics and the health endpoint show of it. It returns the end of the log.
func (s *source) check(ctx context.Context, conn *pgx.Conn, cp checkpoint.Checkpoint) (pg.LSN, error) {
	seen, view, err := s.inspect(ctx, conn)
	cp.LSN = max(cp.LSN, pg.LSN(s.checkpointer.saved.Load())) // read after the slot, which is always behind the checkpoint
	cp.Publication = s.checkpointer.publication()             // of the last look
	cp.Owned = s.checkpointer.last().Owned
	if err != nil {
		return 0, s.sinceCheckpoint(ctx, conn, &cp, view, err)
	}
	server, err := catalog.ReadServer(ctx, conn)
	if err != nil {
		return 0, err
	}
	seen.SystemID, seen.Timeline, seen.Database, seen.CurrentLSN = cp.SystemID, cp.Timeline, cp.Database, server.FlushLSN
	if _, err := checkpoint.Verify(&cp, seen); err != nil {
		return 0, err
	}
	s.checkpointer.follow(seen.Publication, horizon{view.Horizon, view.End})
	if err := s.health.rebind(func() error { return s.suffice(ctx, conn) }); err != nil {
		return 0, err
	}
	standbys, err := catalog.ReadStandbyWait(ctx, conn, seen.Slot)
	if err != nil {
		return 0, err
	}
	if s.health.waitsFor(standbys) {
		s.log.Warn("the server waits for a standby, and sends nothing", zap.Stringer("because", standbys), zap.String("remedy", standbys.Remedy()))
	}
	s.health.slotSeen(seen.Slot, server.FlushLSN, keptBy(ctx, conn, seen.Slot))
	return server.FlushLSN, nil
}
