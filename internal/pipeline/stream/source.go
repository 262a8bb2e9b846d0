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

// ErrBeginAnew ends a pipeline with events in flight of unknown outcome, and drops them. A
// new pipeline may stand by, and begins with slot and checkpoint.
var ErrBeginAnew = errors.New("what this instance has in flight is out of date")

// ErrTakenOver is ErrBeginAnew after another instance has read the slot.
var ErrTakenOver = fmt.Errorf("another instance has read the slot in the meantime, so %w", ErrBeginAnew)

// source keeps a session with PostgreSQL: connects, becomes the slot's reader,
// streams into the intake, and begins again when the connection breaks. run is
// the only goroutine and owns all fields. The monitor beside run sets whole,
// judged, viewed and lastWords, and reads only fields constant during a session.
type source struct {
	opts         Options
	router       *transform.Router
	intake       *intake
	tables       *outboxTables
	checkpointer *checkpointer
	kept         checkpoint.Store // for questions beside loads and saves
	repairer     Repairer         // nil: a loss ends the pipeline
	deliverer    *deliverer       // for the repairer's events
	transactions *Transactions    // nil: delivery is at least once
	health       *Health
	// compare compares earlier acknowledgements with the brokers' records; see acknowledged.
	compare    func(context.Context, checkpoint.Ends) error
	routes     func(ctx context.Context, ends checkpoint.Ends) error // see Parts; may be nil
	left       func(ctx context.Context, topic string) error         // see Parts; may be nil
	leftBehind func(ctx context.Context, f *checkpoint.Former) error // see Parts; may be nil
	metrics    session.Metrics
	limits     limits
	log        *zap.Logger
	digest     *digest.Log
	outage     *digest.Outage // of PostgreSQL, or the checkpoint store
	unfit      *digest.Outage // a spare that could not take over
	visibility *visibility
	// lease is the sink's, held together with the slot. nil: transactions fence.
	lease  *lease.Lease
	tenure *tenure // of the present stream

	stopping  func() bool            // whether the pipeline is to stop, and not only the session
	database  string                 // required of the slot
	charset   *pg.Charset            // of the database
	epoch     int64                  // of our checkpoints; 0 before the first stream
	warned    bool                   // of commits waiting for us, at the last session's start
	powerless bool                   // a repair would lack a right, at the last session's start
	unseen    map[pg.Table]string    // the warnings of untold moves, at the last session's start
	judged    atomic.Int64           // the server's version at the last warning of defects
	free      bool                   // the slot, at the last look before a load of the checkpoint
	held      pg.LSN                 // confirmed position of the slot under another reader; 0: no other reader
	elsewhere elsewhere              // while standing by
	admission admission              // likewise
	fit       time.Time              // when a look last found this process able to take over; 0: never
	followed  string                 // the scope of the last followed checkpoint
	begun     *checkpoint.Checkpoint // a Beginning: by the store, nobody has read the slot yet
	server    net.Addr               // of the present stream
	lastWords error                  // of the monitor's connection, if that ended between two looks
	viewed    viewed                 // the monitor's last look
	stream    *wal.Stream            // of the last session, ended by ctx

	told     string // the ID of the accepted gap warned of last
	switched bool   // told of another publication than the checkpoint's

	whole atomic.Uint64  // LSN up to which the stream is certainly complete
	phase *phase.Machine // decides on the next step
	// warden knows what is parked; nil: nothing ever is.
	warden *warden
}

// run streams until ctx ends (nil; the stream stays open for close), or a new
// session would not help (the error).
func (s *source) run(ctx context.Context) error {
	one := func(ctx context.Context) error {
		err := s.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		_, late := s.phase.On(phase.Lost)
		return cmp.Or(err, late)
	}
	return s.toRepair(session.Keep(ctx, one, ErrBeginAnew, func(err error, wait time.Duration) {
		s.health.down(err)
		side, what := "postgres", "PostgreSQL session ended, will reconnect"
		if ofStore(err) {
			side, what = "checkpoint", "the checkpoint store failed, will try again with a new session"
		}
		if s.outage.Failed(what, err, zap.Duration("wait", wait)) {
			s.health.tellStandstill(s.log)
		}
		s.metrics.Reconnected(side)
	}))
}

// session is the life of a connection, and returns the reason of the end.
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
	s.visibility.leave()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if closeErr := h.stream.Close(closing); closeErr != nil {
		s.log.Debug("closing the broken stream failed", zap.Error(closeErr))
	}
	return err
}

// consume publishes and monitors. The first to fail ends the other, and gives the
// error. An alarm of the monitor is never final: after an unnoticed takeover, the
// progress of another instance looks like a loss. The next session compares in
// the right order, and decides.
func (s *source) consume(outer context.Context, sql *pgx.Conn, h *acquired) error {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	s.whole.Store(0) // another server's positions would mislead
	s.checkpointer.follow(h.cp.Publication, horizon{})
	s.server, s.tenure = h.stream.Server(), h.tenure
	var err error
	if h.predecessors, err = s.predecessors(ctx, sql); err != nil { // before the monitor adds us to the readers
		h.snapshot.Release()
		return err
	}
	watched, cp := make(chan error, 1), h.cp
	go func() { // owner: consume, joined below
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

// compared reports whether the session has compared slot and checkpoint while holding the slot.
func (s *source) compared() bool { return s.phase.Now().Saves() }

// publish starts an epoch as the slot's holder and takes in the stream to the end.
func (s *source) publish(ctx context.Context, sql *pgx.Conn, h *acquired) error {
	if err := s.warnOfCommitsThatWait(ctx, sql); err != nil {
		return err
	}
	if err := s.warnOfMoves(ctx, sql); err != nil {
		return err
	}
	if err := s.warnOfRights(ctx, sql); err != nil {
		return err
	}
	if err := s.begin(ctx, sql, h); err != nil {
		return err
	}
	catalog.Close(sql) // the monitor has another
	s.tellGap(&h.cp)
	defer s.startRetention(ctx, h.cp)()
	defer s.watchCandidates(ctx, h.cp)()
	return s.noted(ctx, s.intake.consume(ctx, h.stream, func() time.Duration { return session.Patience(ctx, s.patience()) }))
}

// repeats reports whether the pipeline stops, and a transaction read in part would come again
// after the next start. Kafka transactions repeat nothing.
func (s *source) repeats() bool { return s.transactions == nil && s.stopping() }

// patience limits the wait for the rest of a transaction. A failed pipeline must
// not wait.
func (s *source) patience() time.Duration {
	if !s.repeats() {
		return 0
	}
	return s.limits.whole
}

// warnOfCommitsThatWait warns once if the server takes us for a synchronous
// standby: before the first checkpoint, as the save may have to wait, too.
func (s *source) warnOfCommitsThatWait(ctx context.Context, sql *pgx.Conn) error {
	sync, err := catalog.ReadSyncStandbys(ctx, sql)
	if err == nil {
		err = s.refuseOwnConfirmation(sync)
	}
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

// warnOfMoves warns, once, of rows to be published again after a move to another
// partition.
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

// movesUnseen is catalog.WarnOfMoves for a table, perhaps missing by now.
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
// left open by run. If the server has not seen the position, the checkpoint has.
//
// The lease ends before the slot is free. After a drain without success records may still be
// in the client, or in the kernel on the way to a broker out of reach: behind a successor's
// records they would be out of date.
func (s *source) close(ctx context.Context) {
	defer func() { _, _ = s.phase.On(phase.Stopped) }() // every other phase allows it
	s.lease.End()
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

// remedy is the log's field for an error's remedy, if any.
func remedy(err error) zap.Field {
	if text := failure.RemedyOf(err); text != "" {
		return zap.String("remedy", text)
	}
	return zap.Skip()
}
