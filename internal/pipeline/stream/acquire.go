package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// standbyPoll is the time between two looks of a warm spare at the slot.
const standbyPoll = 500 * time.Millisecond

// acquired is the slot, held by an open stream.
type acquired struct {
	stream *wal.Stream
	next   phase.Step
	found  *checkpoint.Checkpoint // compared with the server; nil: no checkpoint
	cp     checkpoint.Checkpoint  // to begin with
	start  pg.LSN                 // of the stream
	// confirmed is the position reported on the stream until the log is known
	// again: at most the slot's.
	confirmed pg.LSN
	tenure    *tenure
	// predecessors may not know yet of the loss of the slot.
	predecessors []catalog.Reader
	snapshot     *catalog.HeldSnapshot // of a new slot, if to be published; to be released
	unbound      error                 // why events of the present tables would be bad; see bind
	horizon      uint64                // of a view from before the slot was made; 0: it was there
	gap          *checkpoint.Gap       // to be repaired; the slot was made anew
}

// acquire becomes the slot's reader: creates slot and publication on a first
// start, stands by while another process holds the slot, compares the server with
// the checkpoint, and starts streaming.
func (s *source) acquire(ctx context.Context, sql *pgx.Conn) (acquired, error) {
	for fit := s.epoch != 0 || s.idle(); ; {
		if !fit {
			if err := s.yield(ctx, sql); err != nil {
				return acquired{}, err
			}
		}
		h, err := s.tryAcquire(ctx, sql)
		if !errors.Is(err, catalog.ErrSlotActive) {
			return h, err
		}
		if fit, err = s.waitForSlot(ctx, sql); err != nil {
			return acquired{}, err
		}
	}
}

// idle reports whether this pipeline has claimed its transactional id and read nothing yet, as
// after endOpen.
func (s *source) idle() bool {
	return s.transactions != nil && s.epoch == 0 && !s.phase.Unclaimed()
}

// mayEnd reports whether the slot was free at the last look, with the transactional id still
// to be claimed: an open transaction is a dead holder's then.
func (s *source) mayEnd() bool { return s.free && s.phase.Unclaimed() }

// waitForSlot returns when the slot has no reader any more, or we could not read it. fit
// tells whether this instance could take over at the last look. The error is ErrTakenOver
// once the slot's holder has saved a checkpoint later than ours.
func (s *source) waitForSlot(ctx context.Context, sql *pgx.Conn) (fit bool, err error) {
	if _, err := s.phase.On(phase.Busy); err != nil {
		return false, err
	}
	if err := s.reading().StandBy(ctx, sql); err != nil {
		return false, err
	}
	a := spare{creating: s.reporting("another process creates the slot, which takes long", func(catalog.Waiting) {})}
	for {
		if err := backoff.Sleep(ctx, standbyPoll); err != nil {
			return false, err
		}
		answered := s.health.asks()
		slot, _, err := catalog.ReadSlot(ctx, sql, s.opts.Slot)
		answered()
		if err != nil || !slot.Active || slot.Unfit(s.database) != nil {
			return a.fit, err
		}
		if s.idle() {
			return false, ErrTakenOver // the holder has claimed the transactional id since
		}
		if s.beingCreated(ctx, sql, slot, &a) {
			continue
		}
		s.held = max(s.held, slot.ConfirmedFlush)
		s.health.heldBy(ctx, sql, slot)
		if err := s.couldTakeOver(ctx, sql, slot.ActivePID, &a); err != nil {
			return false, err
		}
		if err := s.spokenFor(ctx, sql, slot, &a.holder); err != nil {
			return false, err
		}
	}
}

// yield leaves the slot to other waiting instances, for a while, if this instance may not be
// fit: its configuration may have a mistake of its own.
func (s *source) yield(ctx context.Context, sql *pgx.Conn) error {
	for until := time.Now().Add(s.limits.yield); time.Now().Before(until); {
		slot, _, err := catalog.ReadSlot(ctx, sql, s.opts.Slot)
		if err != nil || slot.Active {
			return err
		}
		waiting, err := catalog.ReadStandbys(ctx, sql, s.opts.Slot)
		if err != nil {
			return err
		}
		own := func(h catalog.Holder) bool { return uint32(h.PID) == sql.PgConn().PID() }
		if waiting = slices.DeleteFunc(waiting, own); len(waiting) == 0 {
			return nil
		}
		if err := backoff.Sleep(ctx, standbyPoll); err != nil {
			return err
		}
	}
	return nil
}

// tryAcquire is acquire without the wait. The looks at slot, checkpoint and server
// position are in the order of checkpoint.Server. By the time the slot is held
// they may be out of date, so begin looks again.
func (s *source) tryAcquire(ctx context.Context, sql *pgx.Conn) (h acquired, err error) {
	repl, err := catalog.ConnectReplication(ctx, s.opts.URL)
	if err != nil {
		return h, fmt.Errorf("open replication connection: %w", err)
	}
	defer func() { catalog.Close(repl) }() // has no effect after Open took the connection over
	defer func() {
		if err != nil {
			h.snapshot.Release()
		}
	}()
	if s.database, err = samePrimary(ctx, sql, repl); err != nil {
		return h, err
	}
	seen, err := s.find(ctx, sql, repl, &h)
	if err != nil {
		return h, err
	}
	id, err := catalog.Identify(ctx, repl)
	if err != nil {
		return h, err
	}
	identify(&seen, id)
	s.health.logEnds(id.FlushLSN)
	if seen.Patroni, err = catalog.Patroni(ctx, sql); err != nil {
		return h, err
	}
	if err := timelineSwitch(ctx, repl, h.found, &seen); err != nil {
		return h, err
	}
	durable, err := s.verify(h.found, seen)
	if err != nil {
		err = s.remake(ctx, sql, repl, &h, &seen, store.OwnFile(err, s.opts.Checkpoint, h.found, seen.Slot))
	} else {
		s.reportCopied(h.found, durable)
		h.cp = s.checkpoint(seen, durable).Succeeding(h.found)
		h.cp.Horizon = max(h.cp.Horizon, h.horizon)
		err = s.recallCut(&h)
	}
	if err != nil {
		return h, err
	}
	s.recall(&h, seen.Slot)
	if err := s.makeFailover(ctx, sql, repl, seen.Slot); err != nil {
		return h, err
	}
	err = s.open(ctx, repl, &h)
	return h, err
}

// makeFailover makes a slot of another program, or from before an upgrade, a
// failover slot, if so configured. Servers before 17 have none.
func (s *source) makeFailover(ctx context.Context, sql *pgx.Conn, repl *pgconn.PgConn, slot catalog.Slot) error {
	if !s.opts.Failover || slot.Failover {
		return nil
	}
	server, err := catalog.ReadServer(ctx, sql)
	if err != nil || server.Major() < catalog.FailoverSlots {
		return err
	}
	if err := catalog.AlterFailover(ctx, repl, slot.Name); err != nil {
		return err
	}
	s.log.Info("made the slot a failover slot (source.failover: always); standbys copy it from now on", zap.String("slot", slot.Name))
	return nil
}

// find looks at the slot, then at the checkpoint, and creates the slot where neither exists.
func (s *source) find(ctx context.Context, sql *pgx.Conn, repl *pgconn.PgConn, h *acquired) (seen checkpoint.Server, err error) {
	seen, view, invalid := s.inspect(ctx, sql)
	if seen.Exists {
		if err := seen.Slot.Unfit(s.database); err != nil { // also while it is active: waiting would not help
			return seen, err
		}
	}
	if seen.Slot.Active {
		return seen, catalog.ErrSlotActive
	}
	h.found, err = s.known(ctx, sql, seen, view)
	if errors.Is(err, kafkalog.ErrOpenTransaction) && s.mayEnd() {
		return seen, s.endOpen(ctx, repl, &seen, err)
	}
	if err != nil {
		return seen, err
	}
	if h.found != nil && !seen.Exists {
		if err := s.createdMeanwhile(ctx, sql); err != nil {
			return seen, err
		}
	}
	if err := s.readable(ctx, sql, h.found, seen, view, invalid); err != nil {
		return seen, err
	}
	h.unbound = s.bind(ctx, sql)
	if h.unbound != nil && (h.found == nil || h.found.Made || s.opts.OnBadEvent != transform.BadEventStop || failure.ClassOf(h.unbound) == failure.Transient) {
		return seen, h.unbound
	}
	switch {
	case h.found != nil:
		return seen, nil
	case seen.Exists:
		return seen, s.withoutCheckpoint(ctx, sql, seen)
	}
	if err := s.create(ctx, sql, repl, h); err != nil {
		return seen, err
	}
	seen, _, err = s.inspect(ctx, sql)
	return seen, err
}

// recall decides where the stream begins: at the last known transaction. The server sends
// that transaction again if the log is the same. Until then nothing counts as read, and no
// more is confirmed than the slot has already.
func (s *source) recall(h *acquired, slot catalog.Slot) {
	h.confirmed = slot.ConfirmedFlush
	h.start = max(h.confirmed, h.cp.Landmark.Commit, s.intake.landmark())
}

func (s *source) scope() string {
	return checkpoint.Scope(s.opts.Tables, s.opts.Messages, s.opts.Prefix)
}

// open starts the stream at h.start. Confirmed positions stay confirmed.
func (s *source) open(ctx context.Context, repl *pgconn.PgConn, h *acquired) (err error) {
	process, err := catalog.ReadOwnSender(ctx, repl)
	if err != nil {
		return err
	}
	h.tenure = &tenure{process: process, lease: s.lease}
	h.stream, err = wal.Open(ctx, repl, wal.Options{
		Slot:            s.opts.Slot,
		Publication:     s.opts.Publication,
		Start:           h.start,
		Confirmed:       h.confirmed,
		StatusInterval:  h.tenure.often(s.opts.StatusInterval),
		LivenessTimeout: s.opts.LivenessTimeout,
		Silent:          s.excused(process.PID),
		Ended:           h.tenure.end,
		Messages:        s.opts.Messages,
		Prefix:          s.opts.Prefix,
		MessagesOnly:    len(s.opts.Tables) == 0,
		Charset:         s.charset,
		Gather:          s.gather(),
		Wanted:          s.tables.has,
		Keep:            s.tables.mayHave,
		Recycle:         true,
		Notice:          s.notices(&h.cp),
	})
	if err != nil {
		return catalog.Unanswered(err)
	}
	h.tenure.stream = h.stream
	h.next, err = s.phase.On(phase.Held)
	return err
}

// gatherForTransactions is how long trickling transactions gather before a Kafka
// transaction. A longer wait is needless: a later event waits for the next Kafka
// transaction anyway.
const gatherForTransactions = time.Millisecond

func (s *source) gather() time.Duration {
	if s.transactions != nil {
		return min(s.opts.Linger, gatherForTransactions)
	}
	return s.opts.Linger
}

// createdMeanwhile looks for a slot missing before the load of the checkpoint. If
// the slot exists now, the checkpoint is from another instance's first start, and
// no slot was dropped: the error is catalog.ErrSlotActive.
func (s *source) createdMeanwhile(ctx context.Context, sql *pgx.Conn) error {
	_, exists, err := catalog.ReadSlot(ctx, sql, s.opts.Slot)
	if err == nil && exists {
		err = fmt.Errorf("%w: it was created a moment ago", catalog.ErrSlotActive)
	}
	return err
}

// verify compares the server with the checkpoint, and with the events taken in
// since, still in flight after a reconnect. It returns the position durable
// downstream.
func (s *source) verify(stored *checkpoint.Checkpoint, seen checkpoint.Server) (durable pg.LSN, err error) {
	durable, err = checkpoint.Verify(stored, seen)
	read := s.intake.furthest()
	if stored != nil && !stored.Cut.IsZero() {
		read = max(read, stored.Cut.Commit+1)
	}
	if err == nil && read > durable {
		flying := *stored // not nil after an earlier session
		flying.LSN = read
		if _, err = checkpoint.Verify(&flying, seen); err != nil {
			err = fmt.Errorf("events were read up to %s that are not in the checkpoint yet, the last of them perhaps of a transaction that was half read: %w", read, err)
		}
	}
	return durable, err
}

// checkpoint describes the database as seen, at lsn.
func (s *source) checkpoint(seen checkpoint.Server, lsn pg.LSN) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{
		LSN:         lsn,
		Landmark:    checkpoint.Landmark{Commit: lsn}, // no event of ours was read behind lsn
		Scope:       s.scope(),
		SystemID:    seen.SystemID,
		Timeline:    seen.Timeline,
		Database:    seen.Database,
		Slot:        s.opts.Slot,
		Publication: seen.Publication, PublicationName: s.opts.Publication,
		Snapshot: s.begun != nil && s.opts.Snapshot,
	}
}

// load returns the checkpoint, or nil. With checkpoint.store: none, this process
// still knows its own reads, but no later ones of another instance.
func (s *source) load(ctx context.Context, confirmed pg.LSN) (*checkpoint.Checkpoint, error) {
	cp, ok, err := s.checkpointer.load(ctx, s.opts.Slot, s.opts.Checkpoint.Key)
	if s.begun = nil; err != nil {
		return nil, err
	}
	if ok && cp.Creating {
		begun := cp
		s.begun, ok = &begun, false
	}
	switch {
	case !ok && s.checkpointer.last().Epoch == 0:
		return nil, nil
	case !ok:
		cp = s.checkpointer.last()
		if confirmed > cp.LSN {
			cp.LSN, cp.Landmark = confirmed, checkpoint.Landmark{Commit: confirmed}
		}
	case phase.Overtaken(s.epoch, cp.Epoch):
		return nil, ErrTakenOver
	}
	return &cp, nil
}

// reportCopied logs a start beyond the stored checkpoint: a failover lost the last
// checkpoint, or the slot was adopted while another program read it. The line explains the
// jump between the two positions.
func (s *source) reportCopied(stored *checkpoint.Checkpoint, start pg.LSN) {
	if stored == nil || start <= stored.LSN {
		return
	}
	if stored.Adopted {
		s.log.Info("the slot's former reader has moved it on since it was adopted; going on from there",
			zap.Stringer("adopted", stored.LSN), zap.Stringer("start", start))
		return
	}
	s.log.Warn("the standby that took over has a copy of the slot that is ahead of its checkpoint; going on from the slot's position, up to which we had confirmed",
		zap.Stringer("checkpoint", stored.LSN), zap.Stringer("start", start),
		zap.Bool("saved_by_this_process", start <= s.checkpointer.confirmed()))
}
