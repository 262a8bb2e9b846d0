package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// SkipReport is the transaction passed over by an operator.
type SkipReport struct {
	Commit string    `json:"commit_lsn"`
	XID    uint32    `json:"xid"`
	Time   time.Time `json:"committed_at"`
	// Events are the transaction's, published or not; Total also counts events
	// beyond the first mostSkipped.
	Events []SkippedEvent `json:"events"`
	Total  int            `json:"total"`
	Done   bool           `json:"done"`
	// Replaces is the commit of another transaction, no longer to be passed over;
	// empty: none.
	Replaces string `json:"replaces,omitempty"`

	landmark checkpoint.Landmark
}

// SkippedEvent is an event of the transaction passed over.
type SkippedEvent struct {
	Seq   uint32 `json:"seq"`
	Table string `json:"table"`
	ID    string `json:"id"`
	// Reason is the obstacle to publishing; empty: only the brokers, not asked
	// here, can refuse the event.
	Reason transform.Reason `json:"reason,omitempty"`
}

// mostSkipped bounds how many events a report names.
const mostSkipped = 100

// ParseSkip reads the LSN of --skip-to.
func ParseSkip(text string) (pg.LSN, error) {
	at, err := pg.ParseLSN(text)
	if err != nil || at == 0 {
		return 0, failure.Configf("write it as the error of run does, for example 0/16B3748", "--skip-to %q is no position in the log", text)
	}
	return at, nil
}

// SkipTransaction has the next run pass over a transaction refused by run, given
// by the position of its commit record. The transaction is noted in the
// checkpoint, and no position is moved: earlier transactions are published as
// always. Without yes there is only a report. SkipTransaction refuses while the
// slot is in use.
func SkipTransaction(ctx context.Context, cfg *config.Config, at pg.LSN, yes bool) (*SkipReport, error) {
	d, err := openIdle(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if err := d.skippable(at); err != nil {
		return nil, err
	}
	report, err := newSkip(d, at).read(ctx)
	if err != nil {
		return nil, err
	}
	if noted := d.stored.Skip; noted.Commit >= d.known() && !noted.Same(report.landmark) {
		report.Replaces = noted.Commit.String()
	}
	if !yes {
		return report, preview("repeat it with --yes")
	}
	if err := d.ready(ctx); err != nil {
		return nil, err
	}
	cp := *d.stored
	cp.Skip, cp.SavedAt = report.landmark, time.Now().UTC()
	cp.Epoch++
	if err := d.save(ctx, cp); err != nil {
		return nil, err
	}
	report.Done = true
	return report, nil
}

// skippable returns why nothing can be passed over at the position, if so.
func (v *view) skippable(at pg.LSN) error {
	if v.mismatch != nil {
		return fmt.Errorf("before a transaction is passed over, something else is to be decided: %w", v.mismatch)
	}
	if v.stored == nil {
		return failure.Configf("set errors.on_bad_event to dead_letter or skip (for an update that is refused: event.on_update to warn) until it is passed",
			"there is no checkpoint to note in what is passed over (checkpoint.store)")
	}
	const remedy = "name the position that the error of run has"
	if known := v.known(); at < known {
		return failure.Configf(remedy, "the transaction at %s is passed already, as everything up to %s is", at, known)
	}
	if at > v.server.FlushLSN {
		return failure.Configf(remedy, "%s lies beyond the server's log, which ends at %s", at, v.server.FlushLSN)
	}
	return nil
}

// skip looks for a single transaction in the stream.
type skip struct {
	*decision
	at     pg.LSN // of the commit record
	past   checkpoint.Past
	replay *checkpoint.Replay // otherwise a transaction of another log might be passed over
	owned  checkpoint.Owned
	moves  transform.Moves
}

func newSkip(d *decision, at pg.LSN) *skip {
	past := d.past()
	return &skip{decision: d, at: at, past: past, replay: checkpoint.NewReplay(past), owned: d.owned(), moves: d.moves()}
}

// read streams from the slot up to the transaction, confirming nothing, and frees the slot for
// the repetition with --yes.
func (s *skip) read(ctx context.Context) (*SkipReport, error) {
	report, err := s.search(ctx)
	if err == nil {
		err = s.released(ctx)
	}
	return report, err
}

func (s *skip) search(ctx context.Context) (*SkipReport, error) {
	stream, err := s.replayed(ctx, s.past)
	if err != nil {
		return nil, err
	}
	defer catalog.Close(stream) // nothing was confirmed
	return s.find(ctx, stream)
}

// replayed streams again everything read of the slot.
func (d *decision) replayed(ctx context.Context, past checkpoint.Past) (*wal.Stream, error) {
	repl, err := d.replication(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := d.stream(ctx, repl, d.cfg.Source.Slot, past.Start, min(past.Slot, past.Start))
	if errors.Is(err, catalog.ErrSlotActive) {
		return nil, failure.Configf("stop the connector first", "%w", err)
	}
	return stream, err
}

// past is everything read of the slot.
func (d *decision) past() checkpoint.Past {
	slot := d.Slot.ConfirmedFlush
	past := checkpoint.Past{Slot: slot, Known: d.known(), Start: d.known()}
	if cp := d.stored; cp.Scope == d.scope() && !cp.Landmark.IsZero() {
		past.Since = cp.Landmark
		past.Start = max(slot, past.Since.Commit)
	}
	return past
}

// find reads up to the transaction. An error says there is none with events
// there.
func (s *skip) find(ctx context.Context, stream *wal.Stream) (*SkipReport, error) {
	r := &SkipReport{}
	for {
		msg, err := stream.Next(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the log up to %s: %w", s.at, err)
		}
		end := msg.End
		switch msg.Kind {
		case wal.Insert:
			if !s.ours(&msg.Row) {
				continue
			}
			if s.moved(r, &msg.Row) {
				continue
			}
			s.router.Expect(msg.Row.Relation.OID, s.owned.Missed(msg.Row.Relation.OID, msg.Row.Position.CommitLSN))
			if err := s.describeColumns(ctx, msg.Row.Relation); err != nil {
				return nil, err
			}
			ev, err := s.router.Route(&msg.Row)
			if err := s.event(r, &msg.Row, ev, err); err != nil {
				return nil, err
			}
			continue
		case wal.Update:
			if s.ours(&msg.Row) {
				s.updated(r, &msg.Row)
			}
			continue
		case wal.Delete:
			if s.ours(&msg.Row) && s.owned.Partitioned(msg.Row.Relation.OID) {
				s.moves.Deleted(s.router, &msg.Row)
			}
			continue
		case wal.LogicalMessage:
			ev, err := s.router.RouteMessage(msg)
			if msg.NonTransactional {
				end = msg.Row.Position.CommitLSN
				if end <= s.past.Known { // read already; but a transaction may commit right behind
					continue
				}
			}
			if err := s.event(r, &msg.Row, ev, err); err != nil {
				return nil, err
			}
			if !msg.NonTransactional {
				continue
			}
		case wal.Commit, wal.Keepalive:
			s.moves.End()
		default:
			continue
		}
		found, err := s.reached(r, end)
		if err != nil {
			return nil, err
		}
		if found {
			return r, nil
		}
	}
}

// ours reports whether run reads events from the row's table: by the table's
// name at the time, or by the checkpoint's knowledge of it.
func (s *skip) ours(row *pg.Row) bool {
	return s.session.ours(row.Relation) || s.owned.Has(row.Relation.OID, row.Position.CommitLSN)
}

// moved reports whether the row was there before the transaction, and so is no
// event.
func (s *skip) moved(r *SkipReport, row *pg.Row) bool {
	move := s.moves.Inserted(s.router, row)
	if move == transform.Moved {
		s.replay.Other(checkpoint.LandmarkOf(row))
	}
	if move != transform.NotMoved {
		s.updated(r, row)
	}
	return move == transform.Moved
}

// updated adds to the report an update refused by run.
func (s *skip) updated(r *SkipReport, row *pg.Row) {
	if s.cfg.Event.OnUpdate == transform.UpdateFatal {
		r.note(row, SkippedEvent{Table: row.Relation.Namespace + "." + row.Relation.Name, Reason: reasonUpdate})
	}
}

// reasonUpdate is the reason of an update, refused by event.on_update: fatal.
const reasonUpdate transform.Reason = "update"

// event adds an event of a transaction to the report.
func (s *skip) event(r *SkipReport, row *pg.Row, ev *transform.Event, routed error) error {
	bad, isBad := errors.AsType[*transform.BadEvent](routed)
	if routed != nil && !isBad {
		return routed
	}
	if row.XID != 0 { // not a message of no transaction
		if err := s.replay.Transaction(checkpoint.LandmarkOf(row)); err != nil {
			return err
		}
	}
	e := SkippedEvent{Table: ev.Table, ID: ev.Name()}
	if kafka := s.cfg.Sink.Kafka; kafka != nil && !isBad && !s.cfg.ClaimCheck.Takes(len(ev.Record.Value)) {
		bad = sink.TooLarge(ev, *kafka)
	}
	if bad != nil {
		e.Reason = bad.Reason
	}
	r.note(row, e)
	return nil
}

func (r *SkipReport) note(row *pg.Row, e SkippedEvent) {
	r.landmark = checkpoint.LandmarkOf(row)
	if r.Total++; r.Total <= mostSkipped {
		e.Seq = row.Position.Seq
		r.Events = append(r.Events, e)
	}
}

// reached ends the transaction in the report, if it has events, and reports
// whether it is the wanted transaction. The server has sent everything up to end.
func (s *skip) reached(r *SkipReport, end pg.LSN) (found bool, err error) {
	if _, err := s.replay.Reached(end); err != nil {
		return false, err
	}
	if tx := r.landmark; r.Total > 0 && tx.Commit == s.at {
		r.Commit, r.XID, r.Time = tx.Commit.String(), tx.XID, tx.Time
		return true, nil
	}
	if end > s.at || end >= s.server.FlushLSN {
		return false, failure.Configf("name the position that the error of run has, which is that of the commit",
			"no transaction with events commits at %s", s.at)
	}
	*r = SkipReport{}
	return false, nil
}

// WriteText prints the report for a person to decide.
func (r *SkipReport) WriteText(w io.Writer) error {
	var l lines
	l.printf("Transaction %d, committed at %s (%s), has these events, which are passed over unless they were published before:\n",
		r.XID, r.Commit, r.Time.Format(time.RFC3339Nano))
	for _, e := range r.Events {
		l.printf("  %d  %s  %s  %s\n", e.Seq, e.Table, cmp.Or(e.ID, "(no id)"), cmp.Or(string(e.Reason), "nothing in it refuses it; brokers were not asked"))
	}
	if more := r.Total - len(r.Events); more > 0 {
		l.printf("  and %d more\n", more)
	}
	if r.Replaces != "" {
		l.printf("It takes the place of the transaction at %s, which is then not passed over any more.\n", r.Replaces)
	}
	if r.Done {
		l.printf("Done: the next run passes over them, names each in its log, and publishes everything before and after.\n")
	}
	return l.to(w)
}
