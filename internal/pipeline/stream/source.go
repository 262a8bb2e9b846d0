package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// ErrBeginAnew ends a pipeline that does not know any more what of its events
// counts. Events in flight are dropped. A new pipeline may stand by, and begins
// with what slot and checkpoint say.
var ErrBeginAnew = errors.New("what this instance has in flight is out of date")

// ErrTakenOver is the ErrBeginAnew of a pipeline whose slot another instance has
// read in the meantime.
var ErrTakenOver = fmt.Errorf("another instance has read the slot in the meantime, so %w", ErrBeginAnew)

// source keeps a session with PostgreSQL: it connects, becomes the slot's
// reader, streams into the intake, and begins again when the connection breaks.
// run is its only goroutine and owns all fields. The monitor beside it sets
// whole; of the others it reads only judged, which is its own, and those that never change.
type source struct {
	opts         Options
	router       *transform.Router
	intake       *intake
	tables       *outboxTables
	checkpointer *checkpointer
	kept         checkpoint.Store // for questions beside loads and saves
	transactions *Transactions    // nil: delivery is at least once
	health       *Health
	// compare compares what brokers had acknowledged with what they have; see acknowledged.
	compare func(context.Context, checkpoint.Ends) error
	routes  func(ctx context.Context, ends checkpoint.Ends) error // nil: nobody asks
	metrics session.Metrics
	limits  limits
	log     *zap.Logger
	digest  *digest.Log
	outage  *digest.Outage // of PostgreSQL, or the checkpoint store
	unfit   *digest.Outage // a spare that could not take over
	// lease is the sink's: it is held while the slot is. nil: transactions fence.
	lease  *lease.Lease
	tenure *tenure // of the present stream

	stopping  func() bool            // whether the pipeline is to stop, and not only the session
	database  string                 // that the slot must be of
	charset   *pg.Charset            // of the database
	epoch     int64                  // of our checkpoints; 0 before the first stream
	warned    bool                   // of commits that wait for us, at the last session's start
	unseen    map[pg.Table]string    // the warnings of moves that nothing would tell, at the last session's start
	judged    atomic.Int64           // the version whose defects were warned of
	held      pg.LSN                 // confirmed position of the slot while another process read it; 0: none did
	elsewhere elsewhere              // while standing by
	admission admission              // likewise
	fit       time.Time              // when this process last knew that it could take over; 0: never
	followed  string                 // the scope of the last checkpoint that was followed
	begun     *checkpoint.Checkpoint // a Beginning: the store says that nobody has read the slot yet
	server    net.Addr               // of the present stream
	stream    *wal.Stream            // of the last session that ended because ctx did

	switched bool // told of another publication than the checkpoint's

	whole atomic.Uint64  // LSN up to which the stream certainly left nothing out
	phase *phase.Machine // says which step comes next
}

// run streams until ctx ends (nil; the stream stays open for close) or an error
// that a new session cannot fix.
func (s *source) run(ctx context.Context) error {
	one := func(ctx context.Context) error {
		err := s.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		_, late := s.phase.On(phase.Lost)
		return cmp.Or(err, late)
	}
	return session.Keep(ctx, one, ErrBeginAnew, func(err error, wait time.Duration) {
		s.health.down(err)
		side, what := "postgres", "PostgreSQL session ended, will reconnect"
		if ofStore(err) {
			side, what = "checkpoint", "the checkpoint store failed, will try again with a new session"
		}
		if s.outage.Failed(what, err, zap.Duration("wait", wait)) {
			s.health.tellStandstill(s.log)
		}
		s.metrics.Reconnected(side)
	})
}

// session is one connection's life. It returns why it ended.
func (s *source) session(ctx context.Context) error {
	sql, err := catalog.Connect(ctx, s.opts.URL)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	s.metrics.Connected("postgres", true)
	defer catalog.Close(sql)
	if s.charset, err = catalog.ReadCharset(ctx, sql); err != nil {
		return err
	}

	h, err := s.acquire(ctx, sql)
	if err != nil {
		return err
	}
	err = s.consume(ctx, sql, &h)
	if ctx.Err() != nil && s.compared() {
		s.stream = h.stream // close will confirm what is drained by then
		return nil
	}
	s.checkpointer.attach(nil)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if closeErr := h.stream.Close(closing); closeErr != nil {
		s.log.Debug("closing the broken stream failed", zap.Error(closeErr))
	}
	return err
}

// consume publishes and, beside it, monitors. The first to fail ends the other,
// and its error is returned. An alarm of the monitor is never final: if another
// instance took the slot unnoticed, its progress looks like a loss. The next
// session decides, because it compares in the right order.
func (s *source) consume(outer context.Context, sql *pgx.Conn, h *acquired) error {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	s.whole.Store(0) // another server's positions would mislead
	s.checkpointer.follow(h.cp.Publication, horizon{})
	s.server, s.tenure = h.stream.Server(), h.tenure
	var err error
	if h.predecessors, err = s.predecessors(ctx, sql); err != nil { // before the monitor shows us as another one
		h.snapshot.Release()
		return err
	}
	watched, cp := make(chan error, 1), h.cp
	go func() { // owner: this call, which joins it below
		err := s.monitor(ctx, cp)
		if err != nil {
			cancel()
		}
		watched <- err
	}()
	err = s.publish(ctx, sql, h)
	if outer.Err() == nil || !s.compared() { // or the stream stays open for close
		h.tenure.end() // before the monitor ceases to show us
	}
	cancel()
	if alarm := <-watched; alarm != nil {
		return &failure.Error{Class: failure.Transient, Err: fmt.Errorf("alarm beside the stream: %w", alarm)}
	}
	if s.compared() && s.stopping() {
		if lost := s.noted(ctx, s.tables.learn(s.intake.furthest())); lost != nil {
			s.log.Error("found at the stop, and the next start says it again", zap.Error(lost), remedy(lost))
		}
	}
	return err
}

// compared reports whether slot and checkpoint were compared while the slot was held, in this
// session.
func (s *source) compared() bool { return s.phase.Now().Saves() }

// publish starts an epoch as the slot's holder and takes in the stream until it
// ends.
func (s *source) publish(ctx context.Context, sql *pgx.Conn, h *acquired) error {
	if err := s.warnOfCommitsThatWait(ctx, sql); err != nil {
		return err
	}
	if err := s.warnOfMoves(ctx, sql); err != nil {
		return err
	}
	if err := s.begin(ctx, sql, h); err != nil {
		return err
	}
	catalog.Close(sql) // the monitor has its own
	defer s.startRetention(ctx, h.cp)()
	defer s.watchCandidates(ctx, h.cp)()
	return s.noted(ctx, s.intake.consume(ctx, h.stream, s.patience))
}

// repeats reports whether this is a stop after which what was read of a transaction comes
// again, if the rest was not. In Kafka transactions nothing does.
func (s *source) repeats() bool { return s.transactions == nil && s.stopping() }

// patience is how long to wait now for the rest of a transaction. A failed
// pipeline must not.
func (s *source) patience() time.Duration {
	if !s.repeats() {
		return 0
	}
	return s.limits.whole
}

// warnOfCommitsThatWait warns once if the server takes us for a synchronous
// standby. It runs before the first checkpoint, because saving that one may
// have to wait too.
func (s *source) warnOfCommitsThatWait(ctx context.Context, sql *pgx.Conn) error {
	sync, err := catalog.ReadSyncStandbys(ctx, sql)
	if err != nil {
		return err
	}
	if sync.Ours() && !s.warned {
		s.log.Warn(catalog.CommitsWait, zap.String("synchronous_standby_names", sync.Setting),
			zap.String("application_name", sync.Application), zap.String("remedy", catalog.CommitsWaitRemedy))
	}
	s.warned = sync.Ours()
	return nil
}

// warnOfMoves warns, once, of rows that would be taken for new ones when they move
// to another partition.
func (s *source) warnOfMoves(ctx context.Context, sql *pgx.Conn) error {
	for _, t := range s.opts.Tables {
		warning, err := s.movesUnseen(ctx, sql, t)
		switch {
		case err != nil:
			return err
		case warning == nil:
			delete(s.unseen, t)
			continue
		case s.unseen[t] != warning.Error():
			s.log.Warn("rows that move to another partition will be published again", zap.Error(warning), remedy(warning))
		}
		if s.unseen == nil {
			s.unseen = make(map[pg.Table]string)
		}
		s.unseen[t] = warning.Error()
	}
	return nil
}

// movesUnseen is catalog.WarnOfMoves for a table, which may be missing by now.
func (s *source) movesUnseen(ctx context.Context, sql *pgx.Conn, t pg.Table) (warning, err error) {
	info, ok, err := catalog.ReadTable(ctx, sql, t)
	if err != nil || !ok || !info.Partitioned {
		return nil, err
	}
	pub, ok, err := catalog.ReadPublication(ctx, sql, s.opts.Publication)
	if err != nil || !ok {
		return nil, err
	}
	rel, ok, err := catalog.ReadColumns(ctx, sql, t)
	if err != nil || !ok {
		return nil, err
	}
	return catalog.WarnOfMoves(ctx, sql, pub, info, s.router.IDColumn(rel), s.opts.Tables)
}

// close confirms the last saved position to the server and ends the session
// that run left open. A position the server may not have seen is in the
// checkpoint.
func (s *source) close(ctx context.Context) {
	defer func() { _, _ = s.phase.On(phase.Stopped) }() // every other phase allows it
	if s.stream == nil {
		return
	}
	if s.phase.Now() == phase.Ready {
		s.checkpointer.attach(s.stream)
		s.checkpointer.attach(nil)
	}
	if err := s.stream.Close(ctx); err != nil {
		s.log.Warn("the server may not have seen the last confirmed position; some events may be sent again", zap.Error(err))
	}
}

// remedy is the log's field for an error's remedy, if there is one.
func remedy(err error) zap.Field {
	if text := failure.RemedyOf(err); text != "" {
		return zap.String("remedy", text)
	}
	return zap.Skip()
}
