package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/catchup"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
)

// WaitOptions are the choices of Wait.
type WaitOptions struct {
	// LSN is the position to wait for; 0: the end of the log at the call.
	LSN pg.LSN
	// Timeout bounds the wait. Required.
	Timeout time.Duration
	// Note is told once why the wait may be long; nil: nobody is.
	Note func(string)
}

// WaitReport says how a wait ended.
type WaitReport struct {
	Reached bool    `json:"reached"`
	Seconds float64 `json:"seconds"`
	// LSN is the position that was waited for, ConfirmedLSN the slot's at the end,
	// BehindBytes the log between them. All are absent in poll mode.
	LSN          string `json:"lsn,omitempty"`
	ConfirmedLSN string `json:"confirmed_lsn,omitempty"`
	BehindBytes  int64  `json:"behind_bytes,omitempty"`
	// Table is the polled table in which UnpublishedRows are left, up to 10,000.
	Table           string `json:"table,omitempty"`
	UnpublishedRows int64  `json:"unpublished_rows,omitempty"`
	// Holder reads the slot.
	Holder *catalog.Holder `json:"holder,omitempty"`
	// Open is the longest open transaction.
	Open *catalog.OpenTransaction `json:"longest_transaction,omitempty"`
	// Checkpoint is why the slot was not compared with the checkpoint, if so.
	Checkpoint *Problem `json:"checkpoint_error,omitempty"`

	behind string
}

// Wait returns once all that was committed before the call is in Kafka. Its error
// is transient if the time is over, and a failure.Loss if the slot can never tell.
// The report is there beside any error, unless nothing was asked.
func Wait(ctx context.Context, cfg *config.Config, opts WaitOptions) (*WaitReport, error) {
	s, err := newSession(cfg)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if s.polls() && opts.LSN != 0 {
		return nil, noSlot("wait --lsn", "wait --now waits for all rows that are there")
	}
	began := time.Now()
	timed, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	w := &waiter{session: s, note: opts.Note, slot: catchup.Wait{Slot: cfg.Source.Slot, Target: catchup.Position(opts.LSN)}}
	err = w.connected(timed)
	late := err != nil && timed.Err() != nil && ctx.Err() == nil
	r := w.report()
	r.Seconds = time.Since(began).Seconds()
	r.Reached = err == nil
	if late {
		asking, cancel := context.WithTimeout(ctx, instancePatience)
		defer cancel()
		err = w.late(asking, r, opts.Timeout)
	}
	return r, err
}

// waiter is a wait in progress.
type waiter struct {
	*session
	note  func(string)
	noted bool
	pace  catchup.Pace
	slot  catchup.Wait
	// rows are of the tables not dealt with yet; nil: not read yet.
	rows []*catchup.Polled
	read bool
	// unchecked is why the checkpoint was not looked at.
	unchecked error
	failed    error // the last error that passed
}

// reconnects are the waits between connections.
var reconnects = backoff.Range{First: 100 * time.Millisecond, Longest: 2 * time.Second}

// connected watches until all is published, with as many connections as it takes.
func (w *waiter) connected(ctx context.Context) error {
	retry := backoff.Series{Range: reconnects}
	for {
		err := w.watch(ctx)
		catalog.Close(w.conn)
		w.conn = nil
		if err == nil || ctx.Err() != nil || failure.ClassOf(err) != failure.Transient {
			return err
		}
		w.failed = err
		w.tell("PostgreSQL cannot be asked: " + err.Error())
		if err := retry.Pause(ctx); err != nil {
			return err
		}
	}
}

// watch is a connection's life. It ends without an error once all is published.
func (w *waiter) watch(ctx context.Context) error {
	if err := w.connectAsRun(ctx); err != nil {
		return err
	}
	if w.polls() {
		return w.watchRows(ctx)
	}
	for {
		reached, err := w.look(ctx, &w.slot, w.pace.Ask())
		if err != nil {
			return err
		}
		w.failed = nil
		if reached {
			return w.compared(ctx)
		}
		if !w.slot.Last.Slot.Active {
			w.tell(w.slot.Describe() + ": waiting for a connector to read it")
		}
		if err := w.pace.Rest(ctx); err != nil {
			return err
		}
	}
}

// look looks at the slot, and with ask has its reader confirm at once.
func (s *session) look(ctx context.Context, wait *catchup.Wait, ask bool) (reached bool, err error) {
	var answer []byte
	if err := s.conn.QueryRow(ctx, catchup.LookSQL, wait.Slot, ask).Scan(&answer); err != nil {
		return false, catalog.Classify(fmt.Errorf("look at the slot: %w", err))
	}
	look, err := catchup.Parse(answer)
	if err != nil {
		return false, err
	}
	return wait.Take(look)
}

// compared returns why run would not go on from the slot, if so. A slot made
// anew before the wait shows only so.
func (w *waiter) compared(ctx context.Context) error {
	v := &view{}
	if err := v.ReadSlot(ctx, w.conn, w.source()); err != nil {
		return err
	}
	if w.unchecked = loadCheckpoint(ctx, w.cfg, v); w.unchecked != nil {
		return nil
	}
	if err := w.readServer(ctx, v); err != nil {
		return err
	}
	if failure.ClassOf(v.mismatch) == failure.Loss {
		return v.mismatch
	}
	return nil
}

// watchRows goes through the tables, one after the other.
func (w *waiter) watchRows(ctx context.Context) error {
	if !w.read {
		w.rows = nil
		err := w.polled(ctx, func(t *poll.Table) error {
			return catalog.Pooled(ctx, w.conn, func() error {
				rows, err := t.Unpublished(ctx, w.conn)
				w.rows = append(w.rows, &catchup.Polled{Rows: rows})
				return err
			})
		})
		if err != nil {
			return err
		}
		w.read = true
	}
	for len(w.rows) > 0 {
		published, moved, err := w.lookAtRows(ctx, w.rows[0])
		switch {
		case err != nil:
			return err
		case published:
			w.rows = w.rows[1:]
			continue
		case moved:
			continue
		}
		w.failed = nil
		if err := w.pace.Rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *waiter) lookAtRows(ctx context.Context, p *catchup.Polled) (published, moved bool, err error) {
	sql, args := p.Statement()
	var answer []byte
	err = catalog.Pooled(ctx, w.conn, func() error { return w.conn.QueryRow(ctx, sql, args...).Scan(&answer) })
	if err != nil {
		return false, false, catalog.Classify(fmt.Errorf("look for unpublished rows: %w", err))
	}
	return p.Take(answer)
}

// tell notes something, once.
func (w *waiter) tell(text string) {
	if w.note != nil && !w.noted {
		w.noted = true
		w.note(text)
	}
}

// report is the state at the end.
func (w *waiter) report() *WaitReport {
	r := &WaitReport{Checkpoint: problem(w.unchecked)}
	if w.polls() {
		if len(w.rows) > 0 {
			r.Table, r.UnpublishedRows, r.behind = w.rows[0].Table, w.rows[0].Left, w.rows[0].Describe()
		}
		return r
	}
	if w.slot.Target != 0 {
		r.LSN = w.slot.Target.String()
	}
	if slot := w.slot.Last.Slot; slot != nil {
		r.ConfirmedLSN, r.BehindBytes, r.behind = slot.Confirmed.String(), w.slot.Behind(), w.slot.Describe()
	}
	return r
}

// late is the error of a wait whose time is over. It asks for whatever explains it.
func (w *waiter) late(ctx context.Context, r *WaitReport, timeout time.Duration) error {
	err := &failure.Error{Class: failure.Transient, Remedy: "start the connector; if it ended, the last line of its log says why"}
	reasons := []string{r.behind}
	switch slot := w.slot.Last.Slot; {
	case w.failed != nil:
		reasons, err.Remedy = append(reasons, w.failed.Error()), remedyOf(w.failed)
	case w.polls() || slot != nil && slot.Active:
		err.Remedy = lookThere
	}
	if instance := askInstance(ctx, w.cfg); instance != nil && !instance.Ready {
		reasons = append(reasons, "the connector is not ready: "+strings.Join(instance.Reasons, "; "))
		if len(instance.Remedies) > 0 {
			err.Remedy = instance.Remedies[0]
		}
	}
	if w.failed == nil && w.connectAsRun(ctx) == nil {
		w.explain(ctx, r)
	}
	if r.Open != nil {
		reasons = append(reasons, "the longest open transaction: "+r.Open.String())
	}
	reasons = slices.DeleteFunc(reasons, func(reason string) bool { return reason == "" })
	if len(reasons) == 0 {
		reasons = []string{"PostgreSQL has not answered"}
	}
	err.Err = fmt.Errorf("not everything is in Kafka after %s: %w", timeout, errors.New(strings.Join(reasons, "; ")))
	return err
}

// explain adds who reads the slot and the longest open transaction, as far as the
// server tells.
func (w *waiter) explain(ctx context.Context, r *WaitReport) {
	_ = catalog.Pooled(ctx, w.conn, func() error { // an explanation only
		if slot := w.slot.Last.Slot; slot != nil && slot.Active {
			if holder, err := catalog.ReadHolder(ctx, w.conn, slot.ActivePID); err == nil {
				r.Holder = &holder
			}
		}
		open, err := catalog.LongestTransaction(ctx, w.conn)
		r.Open = open
		return err
	})
}

// WriteText prints the report for a person.
func (r *WaitReport) WriteText(w io.Writer) error {
	var l lines
	if r.Reached {
		up := "all that was committed before is in Kafka"
		if r.LSN != "" {
			up += ", up to " + r.LSN
		}
		l.printf("%s (%s)\n", up, (time.Duration(r.Seconds * float64(time.Second))).Round(time.Millisecond))
	}
	if r.Checkpoint != nil {
		l.line("checkpoint", "not compared with the slot: %s", r.Checkpoint.Error)
		l.remedy(r.Checkpoint.Remedy)
	}
	if r.Holder != nil {
		l.line("read by", "%s", r.Holder)
	}
	return l.to(w)
}
