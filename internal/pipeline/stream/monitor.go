package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

const (
	// lookTimeout bounds a look, so that a dead connection is noticed.
	lookTimeout = 10 * time.Second
	// lastLook bounds the look at a stop.
	lastLook = time.Second
	// standbysEvery is how many looks there are to one for instances standing by.
	standbysEvery = 5
	// lastWords is how long the intake has to say why the stream ended. The
	// intake may be busy for longer.
	lastWords = time.Second
	// shutdownGrace is how long we let a stopping server wait for us. A fast
	// shutdown waits for ever for a walsender whose client replies but cannot
	// confirm (failure mode 4).
	shutdownGrace = 3 * time.Second
)

// monitor watches, beside the stream and on a separate connection, for dangers
// invisible in the stream: a slot about to be lost, a publication leaving rows out,
// a server about to stop. cp is the session's first checkpoint. monitor returns why
// the session must end, or nil at the end of ctx.
func (s *source) monitor(ctx context.Context, cp checkpoint.Checkpoint) error {
	conn, _ := s.connectInTime(ctx, cp) // shows our reading at once
	defer func() { catalog.Close(conn) }()
	blind, looks := false, 0
	var end pg.LSN // of the log, at the last look
	for s.pause(ctx, conn) == nil {
		fresh, flushed, err := s.look(ctx, conn, cp)
		conn = fresh
		if err != nil {
			s.health.unseen()
			s.unasked()
		}
		if s.tenure.ended() {
			if backoff.Sleep(ctx, lastWords) != nil {
				return nil
			}
			return cmp.Or(err, errNotReader)
		}
		switch {
		case err == nil:
			blind = false
			if !s.health.fallsBack() {
				s.outage.Over()
			}
			s.whole.Store(uint64(end)) // the look would have shown a change before end
			end = flushed
			if looks%standbysEvery == 0 {
				s.health.standbysAre(catalog.ReadStandbys(ctx, conn, s.opts.Slot))
			}
			looks++
		case ctx.Err() != nil:
		case errors.Is(err, catalog.ErrShutdown):
			if !errors.Is(err, syscall.ECONNREFUSED) { // or the server is gone
				_ = backoff.Sleep(ctx, shutdownGrace)
			}
			return fmt.Errorf("leave the slot so that the server can stop: %w", err)
		case errors.Is(err, catalog.ErrCrashed):
			s.tenure.end()
			return err
		case s.tenure.lost(): // while nothing is written, the stream may not be read either
			s.tenure.end()
			return fmt.Errorf("%w: %w", errNotShown, err)
		case failure.ClassOf(err) != failure.Transient && conn != nil:
			return err
		case !blind: // only conn is broken; the stream may be well
			blind = true
			s.log.Warn("cannot watch slot and publication beside the stream, will retry", zap.Error(err))
		}
	}
	if s.stopping() { // the next start would not know of rows passed over since the last look
		ending, cancel := session.Ending(ctx, lastLook)
		defer cancel()
		conn, _, _ = s.look(ending, conn, cp)
	}
	return nil
}

// look checks the server, on conn or, if broken or nil, on a new connection. It
// returns the connection for the next look, or nil, and the end of the log.
func (s *source) look(ctx context.Context, conn *pgx.Conn, cp checkpoint.Checkpoint) (*pgx.Conn, pg.LSN, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	conn, view, err := s.askOn(ctx, conn, cp)
	if err != nil {
		return conn, 0, err
	}
	flushed, err := s.check(ctx, conn, view, cp)
	return conn, flushed, err
}

// askOn asks whether the slot is still ours, on conn or, if broken or nil, on a new
// connection. It returns the connection for the next question, or nil, and a view
// with the slot.
func (s *source) askOn(ctx context.Context, conn *pgx.Conn, cp checkpoint.Checkpoint) (*pgx.Conn, *catalog.View, error) {
	terminated := false
	if conn != nil {
		view, err := s.ask(ctx, conn)
		if err == nil {
			return conn, view, nil
		}
		err = catalog.Classify(err)
		terminated = errors.Is(err, catalog.ErrTerminated)
		catalog.Close(conn)
		if errors.Is(err, errNotReader) || errors.Is(err, catalog.ErrCrashed) {
			return nil, nil, err
		}
	}
	fresh, err := s.watch(ctx, cp)
	if err != nil {
		return nil, nil, stopping(err, terminated)
	}
	view, err := s.ask(ctx, fresh)
	return fresh, view, err
}

// hold keeps the lease while everything in flight drains, after the end of the
// monitor and before the end of the stream.
func (s *source) hold(ctx context.Context) {
	if s.stream == nil || s.lease == nil {
		return
	}
	var conn *pgx.Conn
	defer func() { catalog.Close(conn) }()
	for backoff.Sleep(ctx, s.tenure.often(s.limits.monitor)) == nil {
		looking, cancel := context.WithTimeout(ctx, lookTimeout)
		fresh, _, err := s.askOn(looking, conn, s.checkpointer.last())
		cancel()
		if conn = fresh; errors.Is(err, errNotReader) {
			return
		}
	}
}

// connectInTime is watch before the first look.
func (s *source) connectInTime(ctx context.Context, cp checkpoint.Checkpoint) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return s.watch(ctx, cp)
}

// stopping decides whether the server is about to stop, from the error of a
// connection beside a running stream. A streaming server refuses connections if
// about to stop or to restart; both end the stream. Without any answer, the network
// may be the reason, unless an administrator's command has just ended our
// connection.
func stopping(err error, terminated bool) error {
	if errors.Is(err, catalog.ErrUnavailable) || terminated && errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: %w", catalog.ErrShutdown, err)
	}
	return err
}

// watch opens a connection for looks; see connectBeside.
func (s *source) watch(ctx context.Context, cp checkpoint.Checkpoint) (*pgx.Conn, error) {
	return s.connectAs(ctx, cp, catalog.ConnectWatch)
}

// connectBeside opens a connection to the server of the stream begun with cp. The
// URL may lead to another server by now: by a list of hosts, or by an address moved
// in a failover.
func (s *source) connectBeside(ctx context.Context, cp checkpoint.Checkpoint) (*pgx.Conn, error) {
	return s.connectAs(ctx, cp, catalog.ConnectBeside)
}

func (s *source) connectAs(ctx context.Context, cp checkpoint.Checkpoint, connect func(context.Context, string, net.Addr) (*pgx.Conn, error)) (*pgx.Conn, error) {
	conn, err := connect(ctx, s.opts.URL, s.server)
	if err != nil {
		return nil, err
	}
	server, err := ofHistory(ctx, conn, cp.SystemID, cp.Timeline)
	if err == nil {
		err = s.reading().Show(ctx, conn)
	}
	if err != nil {
		catalog.Close(conn)
		return nil, err
	}
	s.listen(ctx, conn)
	s.warnOfDefects(server.Version)
	return conn, nil
}

// ofHistory returns the server of the connection, which must be the primary with the
// stream's history.
func ofHistory(ctx context.Context, conn *pgx.Conn, system string, timeline int32) (catalog.Server, error) {
	server, err := catalog.ReadServer(ctx, conn)
	if err == nil && (server.SystemID != system || server.Timeline != timeline) {
		err = fmt.Errorf("connected to system identifier %s on timeline %d, the stream is from %s on timeline %d",
			server.SystemID, server.Timeline, system, timeline)
	}
	if err == nil && server.InRecovery { // and without knowledge of the slot's reader
		err = errStandby
	}
	return server, err
}

// warnOfDefects warns once of the faults of the server's version.
func (s *source) warnOfDefects(version int) {
	if s.judged.Swap(int64(version)) == int64(version) {
		return
	}
	for _, defect := range catalog.Defects(version) {
		text, remedy := defect.Describe(version)
		s.log.Warn(text, zap.String("remedy", remedy))
	}
}

// viewed is the monitor's last view, and the connection.
type viewed struct {
	on   *pgx.Conn
	view *catalog.View
}

// onto is the view, if it was read on the connection, or nil.
func (v viewed) onto(conn *pgx.Conn) *catalog.View {
	if v.on != conn {
		return nil
	}
	return v.view
}

// check compares the server with the checkpoint once more, and updates metrics and
// health. view has the slot. check returns the end of the log.
func (s *source) check(ctx context.Context, conn *pgx.Conn, view *catalog.View, cp checkpoint.Checkpoint) (pg.LSN, error) {
	// After the slot's question and before the end of the log is settled: the slot is always
	// behind the checkpoint, and the checkpoint behind the end.
	cp.LSN = max(cp.LSN, s.checkpointer.confirmed())
	err := view.ReadPublicationSince(ctx, conn, s.names(), s.viewed.onto(conn), cp.LSN)
	var seen checkpoint.Server
	if err == nil {
		seen, err = s.judge(view)
	}
	cp.Publication = s.checkpointer.publication() // of the last look
	cp.Owned = s.checkpointer.last().Owned
	if err != nil {
		s.viewed = viewed{}
		return 0, s.sinceCheckpoint(ctx, conn, &cp, view, err)
	}
	s.viewed = viewed{conn, view}
	seen.SystemID, seen.Timeline, seen.Database, seen.CurrentLSN = cp.SystemID, cp.Timeline, cp.Database, view.Flushed
	if _, err := checkpoint.Verify(&cp, seen); err != nil {
		return 0, err
	}
	s.checkpointer.follow(seen.Publication, horizon{view.Horizon, view.End})
	if err := s.health.rebind(func() error { return s.suffice(ctx, conn) }); err != nil {
		return 0, err
	}
	var standbys catalog.StandbyWait
	if view.NamesStandbys {
		if standbys, err = catalog.ReadStandbyWait(ctx, conn, seen.Slot); err != nil {
			return 0, err
		}
	}
	if s.health.waitsFor(standbys) {
		s.log.Warn("the server waits for a standby, and sends nothing", zap.Stringer("because", standbys), zap.String("remedy", standbys.Remedy()))
	}
	kept := ""
	if s.health.threatened(seen.Slot, view.Flushed) {
		kept = keptBy(ctx, conn, seen.Slot)
	}
	s.health.slotSeen(seen.Slot, view.Flushed, kept)
	return view.Flushed, nil
}
