package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

const (
	// monitorPoll is how often slot and publication are looked at.
	monitorPoll = 2 * time.Second
	// shutdownGrace is how long a server that is stopping may wait for us. A
	// fast shutdown waits without end for a walsender whose client keeps
	// replying but cannot confirm (failure mode 4).
	shutdownGrace = 3 * time.Second
)

// monitor watches, beside the stream, what the stream cannot show: a slot that
// is about to be lost, a publication that leaves rows out, a server that wants
// to stop. It returns why the session must end, or nil when ctx ended it.
func (s *source) monitor(ctx context.Context, conn *pgx.Conn, id wal.Identity) error {
	for sleep(ctx, monitorPoll) {
		err := s.look(ctx, conn, id)
		switch {
		case err == nil, ctx.Err() != nil:
			continue
		case failure.ClassOf(err) != failure.Transient:
			return err
		}
		s.log.Debug("monitor query failed, will reconnect", zap.Error(err))
		fresh, err := wal.Connect(ctx, s.cfg.Source.URL.Reveal())
		if err == nil {
			defer closeConn(fresh)
			conn = fresh
			continue
		}
		if errors.Is(err, wal.ErrShutdown) {
			sleep(ctx, shutdownGrace)
			return fmt.Errorf("leave the slot so that the server can stop: %w", err)
		}
	}
	return nil
}

// look compares the server with the checkpoint once more, and publishes what
// the metrics and the health endpoint show of it.
func (s *source) look(ctx context.Context, conn *pgx.Conn, id wal.Identity) error {
	seen, err := s.inspect(ctx, conn)
	if err != nil {
		if failure.ClassOf(err) == failure.Config { // valid when we started
			return failure.Lossf(failure.RemedyOf(err), "while streaming: %w", err)
		}
		return err
	}
	cp := s.keeper.last()
	server, err := wal.ReadServer(ctx, conn)
	if err != nil {
		return err
	}
	identify(&seen, id)
	seen.CurrentLSN = server.FlushLSN
	if _, err := checkpoint.Verify(&cp, seen); err != nil {
		return err
	}
	s.health.slotSeen(seen.Slot, server.FlushLSN)
	return nil
}
