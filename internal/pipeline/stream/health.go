package stream

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// Health collects the state of the connector. It is safe for concurrent use.
type Health struct {
	kafka        *delivery.Downstream
	metrics      Metrics
	queue        *queue
	tracker      *checkpoint.Locked
	checkpointer *checkpointer
	delivery     *deliverer
	intake       *intake
	slotName     string
	lease        *lease.Lease // nil: always held
	// statusInterval is how often the stream's server is asked for an answer.
	statusInterval time.Duration
	silenceLimit   time.Duration    // see limits.silenceLimit
	look           session.Question // a spare's, at the slot

	retention *retentionHealth

	phase *phase.Machine

	mu    sync.Mutex
	role  session.Role
	slot  catalog.Slot
	flush pg.LSN
	known bool // slot and flush are from the last look
	pgErr string
	// storeErr is why the checkpoint store does not answer a spare or a
	// session.
	storeErr string
	claimErr string              // while the transactional id is asked for
	unfit    string              // why a spare could not take over, but for storeErr
	lacking  string              // why the session repairs
	repair   func() RepairStatus // nil: no repair
	unbound  string              // why the next event of the present tables would be bad
	remedy   string              // of the five errors above
	holder   *catalog.Holder     // while the role is standby
	orphan   int32               // the holder's pid, if without an instance; else 0
	orphaned time.Time           // since when the orphan has not moved
	// Of all sessions:
	progress   progress
	standstill standstill
	waited     bool // an earlier pipeline left unconfirmed log
	// While the role is active:
	looked     time.Time // when slot and publication were last seen
	trend      trend
	standbys   []catalog.Holder
	candidates []catalog.Candidate
	keptBy     string // the transaction holding the slot back; "": none
	awaited    catalog.StandbyWait
	sender     silentSender
	reading    *snapshotReport // nil: no snapshot is being published
}

func newHealth(p Parts, r *Pipeline, in *intake, l limits) *Health {
	h := &Health{
		kafka:        p.Kafka,
		metrics:      p.Metrics,
		queue:        r.queue,
		tracker:      r.tracker,
		checkpointer: r.checkpointer,
		delivery:     r.delivery,
		intake:       in,
		progress:     progress{limit: l.stalled},
		slotName:     p.Slot,

		statusInterval: p.StatusInterval,
		silenceLimit:   l.silenceLimit,
		lease:          p.Lease,
		retention:      &retentionHealth{Observer: p.Metrics},
		role:           session.Role{Tell: p.Metrics.Role},
	}
	h.phase = newPhase(p, h.fallsBack)
	h.role.Set(session.Starting)
	h.goOn(p.Past)
	h.progress.begin(time.Now())
	return h
}

// newPhase returns a pipeline's first phase. Metrics and log tell each change; the log at debug
// level, if the session repeats earlier failures.
func newPhase(p Parts, repeats func() bool) *phase.Machine {
	p.Metrics.Phase(phase.Ended.String(), phase.Connecting.String()) // an earlier pipeline of this process may have ended
	return phase.New(p.Transactions != nil, func(from, to phase.Phase) {
		p.Metrics.Phase(from.String(), to.String())
		level := zap.InfoLevel
		if repeats() {
			level = zap.DebugLevel
		}
		p.Log.Log(level, "phase", zap.Stringer("from", from), zap.Stringer("to", to))
	})
}

// asks begins a spare's look at the slot; the returned function ends the look.
func (h *Health) asks() func() { return h.look.Ask() }

// active notes that the instance reads the slot, and why the next event of the present
// tables would be bad, or nil.
func (h *Health) active(unbound error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.role.Set(session.Active)
	h.pgErr, h.storeErr, h.claimErr, h.unfit, h.lacking, h.looked = "", "", "", "", "", time.Now()
	h.holder, h.trend, h.awaited, h.sender = nil, trend{}, catalog.StandbyWait{}, silentSender{}
	h.bound(unbound)
	h.forget()
	h.progress.begin(h.looked)
}

// bound notes active's verdict on the tables. The caller holds mu.
func (h *Health) bound(err error) {
	if h.unbound = ""; err != nil {
		h.unbound, h.remedy = err.Error(), failure.RemedyOf(err)
	}
}

// rebind notes looks at insufficient tables, until they suffice.
func (h *Health) rebind(look func() error) error {
	h.mu.Lock()
	unbound := h.unbound != ""
	h.mu.Unlock()
	if !unbound {
		return nil
	}
	err := look()
	if err != nil && failure.ClassOf(err) == failure.Transient {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bound(err)
	return nil
}

// standby notes that the instance waits for the slot, and why it could not take over, or nil.
func (h *Health) standby(unfit error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pgErr, h.storeErr, h.claimErr, h.unfit, h.lacking = "", "", "", "", ""
	switch {
	case ofStore(unfit):
		h.storeErr, h.remedy = unfit.Error(), failure.RemedyOf(unfit)
	case unfit != nil:
		h.unfit, h.remedy = unfit.Error(), failure.RemedyOf(unfit)
	}
	h.forget()
	h.role.Set(session.Standby)
}

func (h *Health) stopping() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.role.Set(session.Stopping)
	h.forget()
}

// unseen notes that a look at the slot failed.
func (h *Health) unseen() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
}

// forget drops the last look at the slot: old numbers would look like the present.
// The caller holds mu.
func (h *Health) forget() {
	h.known, h.standbys = false, nil
	h.metrics.SlotUnknown()
}

// down notes why there is no session.
func (h *Health) down(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role.Name == session.Active && !ofStore(err) {
		_, read := h.tracker.Reach()
		h.standstill.failed(time.Now(), read, err)
	}
	h.role.Set(session.Starting)
	h.forget()
	h.pgErr, h.storeErr, h.claimErr, h.unfit, h.lacking, h.remedy, h.holder = err.Error(), "", "", "", "", failure.RemedyOf(err), nil
	if ofStore(err) {
		h.pgErr, h.storeErr = "", err.Error()
		return
	}
	h.metrics.Connected("postgres", false)
}

// answered notes that PostgreSQL and the checkpoint store answer, although the
// session has not begun: the wait for Kafka has reasons of its own.
func (h *Health) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pgErr, h.storeErr = "", ""
}

// threatened notes how much log the slot keeps, and reports whether the question for the cause
// is worth asking: there is a forecast.
func (h *Health) threatened(slot catalog.Slot, flush pg.LSN) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trend.see(time.Now(), keeps(slot, flush))
	return h.trend.growth() > 0
}

// slotSeen notes a look at the slot, and a transaction holding the slot back.
func (h *Health) slotSeen(slot catalog.Slot, flush pg.LSN, keptBy string) {
	h.mu.Lock()
	h.slot, h.flush, h.known, h.looked, h.keptBy = slot, flush, true, time.Now(), keptBy
	h.advance(h.looked)
	lag := h.lag(h.looked)
	h.mu.Unlock()
	h.metrics.Slot(slot, flush, lag)
}

// waitsFor notes the standby the server waits for before sending the stream, and
// reports whether a standby has been away only since the last look.
func (h *Health) waitsFor(w catalog.StandbyWait) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.standbyAway()
	h.awaited = w
	return h.standbyAway() && !before
}

// logEnds notes the end of the server's log, at the start of a session.
func (h *Health) logEnds(flush pg.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flush = flush
	h.advance(time.Now())
}
