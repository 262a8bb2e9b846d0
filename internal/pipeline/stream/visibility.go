package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/sight"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// visibility holds events back until new transactions on the primary see their rows.
// The server sends a commit once the commit is on its own disk, while the committing
// session may still wait for a synchronous standby, and nobody else sees the row.
//
// Each question is for a snapshot, on a connection of its own, and decides on all events
// in the queue. In a backlog one snapshot lasts for many batches. An event is never
// published unseen: without an answer, the events wait, and all else goes on.
//
// Only a server whose log has proven to be the log read before is asked: another log
// gives the same transaction ids to other transactions.
//
// The deliverer calls await, public and close; the source meet, follow and leave, the
// intake follow; health the rest. A nil visibility holds nothing back.
type visibility struct {
	witness *witness
	outage  *digest.Outage

	met *place // the source's: not proven yet; nil: no place, or a proven one

	now   sight.Snapshot       // the last answer
	waits catalog.SyncStandbys // likewise

	held atomic.Pointer[held] // nil: no event waits
}

const (
	// askTimeout bounds a question, with its connection.
	askTimeout = 5 * time.Second
	// invisibleAfter is how long an event may wait in a ready instance.
	invisibleAfter = delivery.StuckAfter
	// seldom is the wait between two questions once the instance is not ready.
	seldom = time.Second
)

// unseenWaits are those between two questions about an event not yet visible: as short
// as the way to a standby and back, and then never much more than the wait so far.
var unseenWaits = backoff.Range{First: time.Millisecond, Longest: 50 * time.Millisecond}

// awayWaits are those between two questions without an answer.
var awayWaits = backoff.Range{First: 100 * time.Millisecond, Longest: 2 * time.Second}

func newVisibility(o *Options, log *zap.Logger) *visibility {
	if !o.Visible {
		return nil
	}
	return &visibility{
		witness: &witness{url: o.URL},
		outage:  digest.NewOutage(log, "the rows of the waiting events can be read on the primary"),
	}
}

// public reports whether the last answer sees the event's row. A snapshot's row was read,
// and a message of no transaction has no row. After a crash, ids come again, so an answer
// from before counts no more.
func (v *visibility) public(ev *transform.Event) bool {
	return ev.XID == 0 || !v.witness.behind() && v.now.Sees(ev.XID)
}

// await returns once the event is public, or the cause of ctx.
func (v *visibility) await(ctx context.Context, ev *transform.Event) error {
	if v.witness.moved() {
		v.now = sight.Snapshot{} // of another server, or from before a crash
	}
	if v.public(ev) {
		return nil
	}
	defer v.held.Store(nil)
	began := time.Now()
	unseen, away := backoff.Series{Range: unseenWaits}, backoff.Series{Range: awayWaits}
	for {
		err := v.look(ctx)
		if err == nil && v.public(ev) {
			v.outage.Over()
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		pause := &away
		if err == nil {
			pause = &unseen
		}
		if err := backoff.Sleep(ctx, v.hold(held{began, ev.Position.CommitLSN, ev.XID, v.waits, err}, pause.Next())); err != nil {
			return err
		}
	}
}

// look asks for a snapshot.
func (v *visibility) look(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	v.now, v.waits, err = v.witness.ask(ctx)
	return err
}

// hold shows the waiting event, and returns how long to wait until the next question.
func (v *visibility) hold(h held, pause time.Duration) time.Duration {
	v.held.Store(&h)
	if !h.late() {
		return pause
	}
	v.outage.Failed("an event waits until its row can be read on the primary", h.why(),
		zap.Stringer("lsn", h.lsn), zap.Uint32("xid", h.xid), zap.Duration("for", time.Since(h.since)))
	return max(pause, seldom)
}

func (v *visibility) close() {
	if v != nil {
		v.witness.close()
	}
}

// meet notes the server of a new stream.
func (v *visibility) meet(server net.Addr, cp *checkpoint.Checkpoint) {
	if v != nil {
		v.met = &place{server, cp.SystemID, cp.Timeline}
	}
}

// follow has the server asked, from the proof of its log on: at the latest with the
// stream's first event, as more than the queue's bound may come before a commit.
func (v *visibility) follow() {
	if v != nil && v.met != nil {
		v.witness.place.Store(v.met)
		v.met = nil
	}
}

// leave has no new connection made until another stream's server has proven its log.
func (v *visibility) leave() {
	if v != nil {
		v.met = nil
		v.witness.place.Store(nil)
	}
}

// held is an event held back.
type held struct {
	since time.Time
	lsn   pg.LSN // of the commit
	xid   uint32
	waits catalog.SyncStandbys
	err   error // of the last question; nil: the answer does not see the event
}

func (h *held) late() bool { return time.Since(h.since) > invisibleAfter }

// why tells for what the event waits.
func (h *held) why() error {
	switch {
	case h.err != nil:
		return fmt.Errorf("the primary does not tell whether the row of an event can be read: %w", h.err)
	case h.waits.Setting == "":
		return &failure.Error{Remedy: remedyInvisible, Err: errors.New("its commit is on disk, and still not visible, although synchronous_standby_names is empty")}
	case h.waits.Ours():
		return &failure.Error{Remedy: catalog.CommitsWaitRemedy, Err: fmt.Errorf("its commit waits for the connector itself, which synchronous_standby_names (%s) includes", h.waits.Setting)}
	}
	return &failure.Error{Remedy: remedySynchronous, Err: fmt.Errorf("its commit waits for a standby of synchronous_standby_names (%s)", h.waits.Setting)}
}

const (
	remedyInvisible   = "look for the transaction in pg_stat_activity (backend_xid); pg_terminate_backend ends a process that hangs, and its commit stands"
	remedySynchronous = "start the standby, or take its name out of synchronous_standby_names and SELECT pg_reload_conf(): then all that waits can be read; " +
		"pg_stat_replication has the standbys, and pg_stat_activity the waiting commits (wait_event SyncRep)"
)

// Invisible is an event in /status that waits until its row can be read.
type Invisible struct {
	LSN     string  `json:"lsn"`
	XID     uint32  `json:"xid"`
	Seconds float64 `json:"seconds"`
	Reason  string  `json:"reason"`
}

func (v *visibility) status() *Invisible {
	h := v.holds()
	if h == nil {
		return nil
	}
	return &Invisible{h.lsn.String(), h.xid, time.Since(h.since).Seconds(), h.why().Error()}
}

// holds is the event that waits, or nil.
func (v *visibility) holds() *held {
	if v == nil {
		return nil
	}
	return v.held.Load()
}

// waiting is how long an event has been held back.
func (v *visibility) waiting() time.Duration {
	if h := v.holds(); h != nil {
		return time.Since(h.since)
	}
	return 0
}

// unready is why the instance is not ready, with a remedy if known.
func (v *visibility) unready() (reason, remedy string, ok bool) {
	h := v.holds()
	if h == nil || !h.late() {
		return "", "", false
	}
	why := h.why()
	return fmt.Sprintf("source.visibility: the event that was committed at %s has waited for %s until its row can be read on the primary: %v",
		h.lsn, time.Since(h.since).Round(time.Second), why), failure.RemedyOf(why), true
}

// witness asks the server of the present stream.
type witness struct {
	url   string
	place atomic.Pointer[place] // of the present stream; nil: none, or not proven

	// The deliverer's:
	at   *place // of conn, and of the last answer
	conn *pgx.Conn
}

// place is a server with its history. Each session has a place of its own.
type place struct {
	server   net.Addr
	system   string
	timeline int32
}

// behind reports whether there is another place than at the last question.
func (w *witness) behind() bool {
	now := w.place.Load()
	return now != nil && now != w.at
}

// moved is behind, and ends the connection to the former place.
func (w *witness) moved() bool {
	if !w.behind() {
		return false
	}
	w.close()
	w.at = w.place.Load()
	return true
}

func (w *witness) ask(ctx context.Context) (now sight.Snapshot, waits catalog.SyncStandbys, err error) {
	w.moved()
	if w.conn == nil {
		if w.conn, err = w.place.Load().connect(ctx, w.url); err != nil {
			return now, waits, err
		}
	}
	if now, waits, err = catalog.ReadSight(ctx, w.conn); err != nil {
		w.close()
	}
	return now, waits, err
}

func (w *witness) close() {
	catalog.Close(w.conn)
	w.conn = nil
}

// connect opens a connection to the place. Another history's transactions have the same
// ids.
func (p *place) connect(ctx context.Context, url string) (*pgx.Conn, error) {
	if p == nil {
		return nil, errors.New("there is no stream of the log read before")
	}
	conn, err := catalog.ConnectBeside(ctx, url, p.server)
	if err != nil {
		return nil, err
	}
	if _, err := ofHistory(ctx, conn, p.system, p.timeline); err != nil {
		catalog.Close(conn)
		return nil, err
	}
	return conn, nil
}

// publicSnapshot waits until new transactions see the rows of the held snapshot, if any.
func (s *source) publicSnapshot(ctx context.Context, sql *pgx.Conn, snapshot *catalog.HeldSnapshot) error {
	if s.visibility == nil || snapshot == nil {
		return nil
	}
	then, err := snapshot.Sight(ctx)
	if err != nil {
		return err
	}
	return s.sees(ctx, sql, then)
}

// sees waits until new transactions see the rows of a snapshot: that of a slot sees
// commits that wait for a synchronous standby.
func (s *source) sees(ctx context.Context, sql *pgx.Conn, then sight.Snapshot) error {
	wait := backoff.Series{Range: unseenWaits}
	for told := false; ; told = true {
		now, waits, err := catalog.ReadSight(ctx, sql)
		if err != nil || now.Covers(then) {
			s.health.answered()
			return err
		}
		if !told {
			s.log.Info("the rows that are in the outbox wait until all of them can be read", zap.String("synchronous_standby_names", waits.Setting))
		}
		s.health.waiting("rows of the outbox wait until they can be read: a commit waits for a standby of synchronous_standby_names ("+waits.Setting+")", remedySynchronous)
		if err := wait.Pause(ctx); err != nil {
			return err
		}
	}
}

// refuseOwnConfirmation refuses to wait for commits that wait for us.
func (s *source) refuseOwnConfirmation(sync catalog.SyncStandbys) error {
	if s.visibility == nil {
		return nil
	}
	return sync.Circular()
}
