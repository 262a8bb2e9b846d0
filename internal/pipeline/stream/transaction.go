package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// Transactions deliver exactly once: events and their checkpoint share a Kafka
// transaction. docs/internals/protocol.md has the protocol.
type Transactions struct {
	Sink   Transactor
	Marker store.Marker
}

// transactionBytes bounds the waiting events in a Kafka transaction. In a backlog
// several batches thus share the time of an end; otherwise fewer bytes wait.
const transactionBytes = 4 << 20

// inTransactions is a store with a transaction for every save, but for two: the note before
// a first start, as nobody holds the slot then, and the last checkpoint, with a loss. After
// the loss the sink does nothing more.
type inTransactions struct {
	checkpoint.Store
	*Transactions
	// mayEnd reports whether an open transaction is for this pipeline to end; see endOpen.
	mayEnd func() bool
}

// Load implements checkpoint.Store.
func (s inTransactions) Load(ctx context.Context) (checkpoint.Checkpoint, bool, error) {
	if s.mayEnd() {
		return store.LoadUnheld(ctx, s.Store)
	}
	return s.Store.Load(ctx)
}

// Save implements checkpoint.Store.
func (s inTransactions) Save(ctx context.Context, cp checkpoint.Checkpoint) error {
	switch {
	case cp.Creating:
		return s.Store.Save(ctx, cp)
	case cp.Lost != nil:
		cp.Ends = s.Sink.Ends()
		return s.Store.Save(ctx, cp)
	}
	record, err := s.Marker.Mark(cp)
	if err != nil {
		return err
	}
	_, err = s.Sink.Transact(ctx, nil, record)
	return anew(err)
}

// anew is the error of a transactor. A transient error takes a new pipeline: the
// old one does not know which events count.
func anew(err error) error {
	if phase.Protocol.Answered[answered(err)] == phase.BeginAnew {
		return fmt.Errorf("%w: %w", ErrBeginAnew, err)
	}
	return err
}

// answered is Kafka's answer in a transactor's error.
func answered(err error) phase.Answer {
	switch {
	case err == nil:
		return phase.Committed
	case failure.ClassOf(err) != failure.Transient:
		return phase.Failed
	case errors.Is(err, sink.ErrFenced):
		return phase.Fenced
	}
	return phase.Unknown
}

// prepare has brokers do their part in advance of the next batch.
func (d *deliverer) prepare(ctx context.Context) error {
	if d.transactions == nil {
		return nil
	}
	return anew(d.checkpointer.exclusive(ctx, func() error { return d.transactions.Sink.Prepare(ctx) }))
}

// transact delivers the batch in a transaction with its checkpoint, then has the
// checkpoint confirmed, and returns how many items are dealt with.
func (d *deliverer) transact(ctx context.Context, batch []item) (done int, err error) {
	k, at := d.checkpointer, func(i int) *delivery.Item { return &batch[i].Item }
	// Not within exclusive: a session may have to save a checkpoint.
	save := func() error { return k.advance(ctx) }
	if err := d.delivery.Await(ctx, d.transactions.Sink, len(batch), at, save); err != nil {
		return 0, anew(err)
	}
	err = k.exclusive(ctx, func() (err error) {
		var cp checkpoint.Checkpoint
		began := time.Now()
		mark := func(n int) (*kgo.Record, error) {
			lsn, landmark, cut := d.reached(batch[:n])
			cp = k.next(lsn, landmark, cut, k.initial.after(batch[:n]))
			return d.transactions.Marker.Mark(cp)
		}
		done, err = d.delivery.Transact(ctx, d.transactions.Sink, len(batch), at, mark)
		d.queue.rest(d.transactions.Sink.Next())
		if done == 0 {
			return err
		}
		if len(cp.Doubtful) == 0 {
			d.transactions.Sink.Settled()
		}
		k.committed(cp, began)
		return err
	})
	return done, anew(err)
}

// reached is how far the log is dealt with after the items, the next in order.
func (d *deliverer) reached(batch []item) (lsn pg.LSN, landmark checkpoint.Landmark, cut checkpoint.Cut) {
	last := &batch[len(batch)-1]
	n := 0
	for i := len(batch) - 1; i >= 0 && batch[i].ticket == last.ticket; i-- {
		n++
	}
	lsn, landmark, whole := d.tracker.After(last.ticket, n)
	ev := last.Event
	switch {
	case whole:
	case ev.XID == 0: // a message of no transaction: the position is the end
		lsn = max(lsn, ev.Position.CommitLSN)
	default:
		cut = checkpoint.Cut{
			Landmark: checkpoint.Landmark{Commit: ev.Position.CommitLSN, XID: ev.XID, Time: ev.CommitTime},
			Seq:      ev.Position.Seq,
		}
	}
	return lsn, landmark, cut
}

// next is the checkpoint of a Kafka transaction up to there; rows is how far a snapshot
// is then, or nil.
func (k *checkpointer) next(lsn pg.LSN, landmark checkpoint.Landmark, cut checkpoint.Cut, rows *checkpoint.Initial) checkpoint.Checkpoint {
	cp := k.last().Reached(lsn, landmark, cut)
	if rows != nil {
		cp.Initial = rows
	}
	return k.dated(cp)
}

// committed notes the known commit of the transaction with cp, and confirms.
func (k *checkpointer) committed(cp checkpoint.Checkpoint, began time.Time) {
	k.metrics.CheckpointSaved(nil)
	k.durable(cp)
	k.progress.succeeded(began)
}

// claim gets the transactional id for this pipeline.
func (s *source) claim(ctx context.Context) error {
	s.health.claiming()
	return anew(s.transactions.Sink.Claim(ctx))
}

// recallDoubtful finds the outcome of the transactions in doubt.
func (s *source) recallDoubtful(ctx context.Context, cp *checkpoint.Checkpoint) error {
	if s.transactions == nil {
		return nil
	}
	return s.checkpointer.exclusive(ctx, func() (err error) { // after the Kafka transaction that is under way
		cp.Doubtful, err = s.transactions.Sink.Recall(ctx, cp.Doubtful)
		return anew(err)
	})
}

// errEnded ends a session after the end of a former holder's open transaction.
var errEnded = errors.New("ended a Kafka transaction that a former holder of the slot may have left open; looking again")

// endOpen ends a transaction, perhaps a former holder's, that hides the last
// checkpoint. Only the slot's holder may do so, and endOpen takes the slot first. Beside
// another connector's checkpoint under the key the open transaction stays, and open is the
// error: a mistaken configuration must not fence a connector at work.
func (s *source) endOpen(ctx context.Context, repl *pgconn.PgConn, seen *checkpoint.Server, open error) error {
	id, err := catalog.Identify(ctx, repl)
	if err != nil {
		return err
	}
	identify(seen, id)
	last, written, err := s.lastWritten(ctx)
	if err != nil {
		return err
	}
	if written && last.Belongs(seen) != nil {
		return open
	}
	held := acquired{confirmed: seen.Slot.ConfirmedFlush, start: seen.Slot.ConfirmedFlush}
	err = s.open(ctx, repl, &held)
	if err != nil {
		return err
	}
	if err = s.claim(ctx); err == nil {
		_, err = s.phase.On(phase.Alone)
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = held.stream.Close(closing) // nothing was read
	if err != nil {
		return err
	}
	return errEnded
}

// lastWritten is the last checkpoint under the key, perhaps without a commit.
func (s *source) lastWritten(ctx context.Context) (cp checkpoint.Checkpoint, ok bool, err error) {
	b := bounded{s.kept, s.limits.store}
	err = b.within(ctx, func(ctx context.Context) error {
		cp, ok, err = store.LastWritten(ctx, b.Store)
		return err
	})
	return cp, ok, err
}

// fitsSnapshot refuses a pending snapshot where rows must come in the order of parked keys: after
// a crash, rows may come again. With exactly-once delivery it refuses that of a slot made without
// a snapshot, or by a first start ended before its first checkpoint: which of the present rows the
// stream has, too, is not known. The slot stays: it has events deleted since.
func (s *source) fitsSnapshot(cp *checkpoint.Checkpoint) error {
	switch {
	case !cp.Snapshot:
		return nil
	case s.warden != nil:
		return failure.Configf("set errors.on_bad_event to stop, dead_letter or skip; once the snapshot is published, stop, and set quarantine",
			"the rows that are in the outbox tables have to be published, and a crash meanwhile would publish rows from before a parked one behind it")
	case s.transactions == nil, cp.Initial != nil:
		return nil
	}
	return failure.Configf("without the snapshot: `cdc-outbox setup --accept-gap --yes`, then `cdc-outbox run`, and beside it `cdc-outbox repair --publish`, which publishes the missing events alone; "+
		"or publish the snapshot with sink.kafka.delivery: at_least_once first; once it is published, stop, and set exactly_once",
		"the rows that are in the outbox tables have to be published, and the snapshot of slot %s is gone, or was never made, so some of them would come twice", s.opts.Slot)
}
