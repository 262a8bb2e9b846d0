package stream

import (
	"cmp"
	"fmt"
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

// Status is what /status shows.
type Status struct {
	delivery.Status
	// Phase is the name of a phase.Phase.
	Phase string `json:"phase"`
	Slot  string `json:"slot"`
	// Positions are absent until this instance has read the slot.
	ReceivedLSN    string  `json:"received_lsn,omitempty"`
	ConfirmedLSN   string  `json:"confirmed_lsn,omitempty"`
	SlotLagSeconds float64 `json:"slot_lag_seconds"`
	// What the server says of slot and log is there only while it is known: not
	// while this instance stands by, nor while PostgreSQL is away.
	ServerLSN     string `json:"server_lsn,omitempty"`
	SlotLagBytes  *int64 `json:"slot_lag_bytes,omitempty"`
	RetainedBytes *int64 `json:"slot_retained_bytes,omitempty"`
	WALStatus     string `json:"wal_status,omitempty"`
	// SafeWALBytes can still be written before the server may invalidate the slot;
	// nil without a limit.
	SafeWALBytes *int64 `json:"slot_safe_wal_bytes,omitempty"`
	// SlotPID is the server's process that reads the slot for this instance.
	SlotPID int32 `json:"slot_pid,omitempty"`
	// Holder is who reads the slot, where this instance stands by.
	Holder *catalog.Holder `json:"holder,omitempty"`
	// Standbys are those that wait for the slot, where this instance reads it.
	Standbys []catalog.Holder `json:"standbys,omitempty"`
	// Failover is how failovers would find the slot, by server, where this instance
	// reads it; absent where the slot's server is alone.
	Failover []catalog.Candidate `json:"failover,omitempty"`
	// Sender is there while the process has been silent for long, and works.
	Sender *SenderStatus `json:"sender,omitempty"`
	// Forecast is there while the slot keeps more and more log.
	Forecast *Forecast `json:"forecast,omitempty"`
	// Standstill is there while session after session fails at one position.
	Standstill *Standstill `json:"standstill,omitempty"`
	// OldestUnconfirmedSeconds is how long the server has had log that is not
	// confirmed.
	OldestUnconfirmedSeconds float64 `json:"oldest_unconfirmed_seconds"`
	// CheckpointAgeSeconds is the age of the oldest acknowledged position that is
	// not saved; 0 if all are. The other two tell for how long saves have failed,
	// and what the store said last.
	CheckpointAgeSeconds     float64 `json:"checkpoint_age_seconds"`
	CheckpointFailingSeconds float64 `json:"checkpoint_failing_seconds,omitempty"`
	CheckpointError          string  `json:"checkpoint_error,omitempty"`
	// Retention is by table; empty while retention is off.
	Retention map[string]RetentionStatus `json:"retention,omitempty"`
}

// Health collects what the connector knows of its own state. It is safe for
// concurrent use.
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
	mute           time.Duration    // see limits.mute
	look           session.Question // a spare's, at the slot

	retention *retentionHealth

	phase *phase.Machine

	mu    sync.Mutex
	role  session.Role
	slot  catalog.Slot
	flush pg.LSN
	known bool // slot and flush are what the last look has seen
	pgErr string
	// storeErr is why the checkpoint store does not answer a spare or a
	// session.
	storeErr string
	claimErr string          // while the transactional id is asked for
	unfit    string          // why a spare could not take over, but for storeErr
	unbound  string          // why the next event of the tables as they are would be a bad one
	remedy   string          // of these five
	holder   *catalog.Holder // while the role is standby
	orphan   int32           // the holder's number, if no instance is behind it; else 0
	orphaned time.Time       // since when it has not moved
	// Of all sessions:
	progress   progress
	standstill standstill
	waited     bool // an earlier pipeline left log that was not confirmed
	// While the role is active:
	looked     time.Time // when slot and publication were last seen
	trend      trend
	standbys   []catalog.Holder
	candidates []catalog.Candidate
	keptBy     string // who keeps the slot where it is; "" for nobody else
	awaited    catalog.StandbyWait
	sender     silentSender
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
		mute:           l.mute,
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
// level, if this session repeats those before it.
func newPhase(p Parts, repeats func() bool) *phase.Machine {
	p.Metrics.Phase(phase.Ended.String(), phase.Connecting.String()) // an earlier pipeline of this process may have ended
	return &phase.Machine{Tell: func(from, to phase.Phase) {
		p.Metrics.Phase(from.String(), to.String())
		level := zap.InfoLevel
		if repeats() {
			level = zap.DebugLevel
		}
		p.Log.Log(level, "phase", zap.Stringer("from", from), zap.Stringer("to", to))
	}}
}

// active notes that this instance reads the slot, and why the next event of the tables
// as they are now would be a bad one; nil if it would not.
func (h *Health) active(unbound error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.role.Set(session.Active)
	h.pgErr, h.storeErr, h.claimErr, h.unfit, h.looked = "", "", "", "", time.Now()
	h.holder, h.trend, h.awaited, h.sender = nil, trend{}, catalog.StandbyWait{}, silentSender{}
	h.bound(unbound)
	h.forget()
	h.progress.begin(h.looked)
}

// bound notes what active says of the tables. The caller holds mu.
func (h *Health) bound(err error) {
	if h.unbound = ""; err != nil {
		h.unbound, h.remedy = err.Error(), failure.RemedyOf(err)
	}
}

// rebind notes what a look at tables says that did not suffice, until they do.
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

// standby notes that this instance waits for the slot, and why it could not take over; nil
// if it could.
func (h *Health) standby(unfit error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pgErr, h.storeErr, h.claimErr, h.unfit = "", "", "", ""
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

// forget makes what the server said of the slot unknown: old numbers would look
// like the present. The caller holds mu.
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
	h.pgErr, h.storeErr, h.claimErr, h.unfit, h.remedy, h.holder = err.Error(), "", "", "", failure.RemedyOf(err), nil
	if ofStore(err) {
		h.pgErr, h.storeErr = "", err.Error()
		return
	}
	h.metrics.Connected("postgres", false)
}

// answered notes that PostgreSQL and the checkpoint store do, although the session
// has not begun: it waits for Kafka, which has reasons of its own.
func (h *Health) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pgErr, h.storeErr = "", ""
}

// slotSeen notes what the server said of the slot, and who but this connector
// keeps it where it is.
func (h *Health) slotSeen(slot catalog.Slot, flush pg.LSN, keptBy string) {
	h.mu.Lock()
	h.slot, h.flush, h.known, h.looked, h.keptBy = slot, flush, true, time.Now(), keptBy
	h.trend.see(h.looked, keeps(slot, flush))
	h.advance(h.looked)
	lag := h.lag(h.looked)
	h.mu.Unlock()
	h.metrics.Slot(slot, flush, lag)
}

// waitsFor notes what the server waits for before it sends the stream. It reports
// whether it is a standby that is away, and was not at the last look.
func (h *Health) waitsFor(w catalog.StandbyWait) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.standbyAway()
	h.awaited = w
	return h.standbyAway() && !before
}

// standbyAway reports whether the server sends nothing because a standby is away.
// The caller holds mu.
func (h *Health) standbyAway() bool { return h.awaited.Waiting && h.awaited.Away() != "" }

// logEnds notes the end of the server's log, at the start of a session.
func (h *Health) logEnds(flush pg.LSN) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flush = flush
	h.advance(time.Now())
}

// lag is the age of the oldest committed event that is not confirmed. Of what was
// not received it is not known whether it has an event; it counts as one. The
// caller holds mu.
func (h *Health) lag(now time.Time) time.Duration {
	lag := max(h.delivery.lag(), h.progress.unread(now))
	if h.checkpointer.acked.Load() {
		lag = max(lag, h.checkpointer.progress.age())
	}
	return lag
}

// Live is always nil while the process can answer: a dead broker is no reason
// to restart it.
func (h *Health) Live() error { return nil }

// Ready reports whether events flow, or would if there were any. A warm spare
// counts as ready; otherwise a rolling update would never end.
func (h *Health) Ready() (ok bool, reasons []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role.Name != session.Active && h.role.Name != session.Standby {
		reasons = append(reasons, "role is "+h.role.Name)
	}
	if h.pgErr != "" {
		reasons = append(reasons, "PostgreSQL: "+h.pgErr)
	}
	if h.storeErr != "" {
		reasons = append(reasons, h.storeErr)
	}
	if h.claimErr != "" {
		reasons = append(reasons, h.claimErr)
	}
	if h.unfit != "" {
		reasons = append(reasons, "this spare could not take over: "+h.unfit)
	}
	reasons = append(reasons, h.kafka.Unready(h.delivery.stuck(), delivery.StuckAfter)...)
	if reason, unsaved := h.checkpointer.progress.unready(); unsaved && h.role.Name == session.Active {
		reasons = append(reasons, reason)
	}
	now := time.Now()
	if h.standsStill(now) {
		reasons = append(reasons, h.standstill.reason(now))
	}
	if h.unbound != "" && h.role.Name == session.Active {
		reasons = append(reasons, "the next event would stop this instance: "+h.unbound)
	}
	switch h.role.Name {
	case session.Active:
		reasons = append(reasons, h.stalled(now, len(reasons) > 0)...)
	case session.Standby:
		reasons = append(reasons, h.look.Unready(h.mute)...)
		if h.orphan != 0 {
			reasons = append(reasons, h.orphanReason(now))
		}
	}
	return len(reasons) == 0, reasons
}

// standsStill reports whether session after session fails at one position. A spare
// reads nothing. The caller holds mu.
func (h *Health) standsStill(now time.Time) bool {
	if h.role.Name == session.Standby {
		return false
	}
	h.advance(now)
	return h.standstill.lasts()
}

// failures is how many sessions have failed at the present position.
func (h *Health) failures() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role.Name == session.Standby {
		return 0
	}
	h.advance(time.Now())
	return h.standstill.failures
}

// advance notes how far everything is now. The caller holds mu.
func (h *Health) advance(now time.Time) {
	position, read := h.tracker.Reach()
	h.standstill.see(position, read, h.flush)
	h.progress.see(now, pulse{
		flush:     h.flush,
		received:  h.received(),
		position:  position,
		confirmed: h.confirmed(),
		inFlight:  h.tracker.InFlight(),
		dealt:     h.delivery.count.Load(),
		arrived:   h.intake.changes.Load(),
	})
}

// stalled lists what stands still, unless the reason is known. The caller holds
// mu.
func (h *Health) stalled(now time.Time, known bool) (reasons []string) {
	h.advance(now)
	blind := now.Sub(h.looked)
	unanswered := min(blind, now.Sub(h.sender.asked))
	switch why, silent := h.progress.stall(now), h.silent(); {
	case known:
	case silent > max(h.mute, 2*h.statusInterval) && unanswered > h.mute: // either alone may be busy
		reasons = append(reasons, fmt.Sprintf("PostgreSQL has answered neither the stream nor a look beside it for %s", min(silent, unanswered).Round(time.Second)))
	case h.standbyAway():
		reasons = append(reasons, h.awaited.String())
	case h.senderSilent(now):
		reasons = append(reasons, h.senderReason())
	case why != "" && h.awaited.Waiting:
		reasons = append(reasons, why+"; "+h.awaited.String())
	case why != "":
		reasons = append(reasons, why)
	case silent > h.statusInterval+h.progress.limit:
		reasons = append(reasons, fmt.Sprintf("the stream has been silent for %s, although the server is asked for an answer", silent.Round(time.Second)))
	}
	if !h.lease.Held() {
		reasons = append(reasons, "PostgreSQL has not shown for long that this instance still reads the slot, so nothing is written to Kafka until it does")
	}
	if blind > h.progress.limit {
		reasons = append(reasons, fmt.Sprintf("slot and publication could not be looked at for %s", blind.Round(time.Second)))
	}
	return reasons
}

// unconfirmed is how long the server has had log that is not confirmed, also while
// it cannot be reached; 0 for a spare, and before the first stream.
func (h *Health) unconfirmed() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role.Name == session.Standby || h.confirmed() == 0 && !h.waited {
		return 0
	}
	now := time.Now()
	h.advance(now)
	return h.progress.unconfirmed(now)
}

// silent is how long the stream has waited for any message of the server.
func (h *Health) silent() time.Duration {
	if s := h.checkpointer.stream.Load(); s != nil {
		return s.Silent()
	}
	return 0
}

func (h *Health) received() pg.LSN {
	if s := h.checkpointer.stream.Load(); s != nil {
		return s.Received()
	}
	return 0
}

func (h *Health) confirmed() pg.LSN { return pg.LSN(h.checkpointer.saved.Load()) }

// checkpointAge is 0 for a spare: another instance publishes again what this
// one has not saved.
func (h *Health) checkpointAge() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role.Name == session.Standby {
		return 0
	}
	return h.checkpointer.progress.age()
}

func (h *Health) inFlight() int64 { return int64(h.tracker.InFlight()) }

// Status returns a Status for /status.
func (h *Health) Status() any {
	unconfirmed, age := h.unconfirmed(), h.checkpointAge()
	received, confirmed := h.received(), h.confirmed()
	failing, saveErr := h.checkpointer.progress.trouble()
	h.mu.Lock()
	defer h.mu.Unlock()
	st := Status{
		Status: h.kafka.Complete(delivery.Status{
			Role: h.role.Name, RoleSince: h.role.Since, PostgresError: h.pgErr, LastEvent: h.delivery.delivery.Last(),
			InFlightEvents: h.inFlight(), InFlightBytes: h.queue.bytes(), UnackedSeconds: h.delivery.stuck().Seconds(),
		}),
		Phase:          h.phase.Now().String(),
		Slot:           h.slotName,
		Holder:         h.holder,
		Standbys:       h.standbys,
		Failover:       h.candidates,
		ReceivedLSN:    pg.LSNText(received),
		ConfirmedLSN:   pg.LSNText(confirmed),
		SlotLagSeconds: h.lag(time.Now()).Seconds(),
		Standstill:     h.standstill.status(time.Now()),
		Sender:         h.senderStatus(time.Now()),
		Retention:      h.retention.status(),

		OldestUnconfirmedSeconds: unconfirmed.Seconds(),
		CheckpointAgeSeconds:     age.Seconds(),
		CheckpointError:          cmp.Or(saveErr, h.storeErr),
	}
	if saveErr != "" || failing > unsavedAfter {
		st.CheckpointFailingSeconds = failing.Seconds()
	}
	if h.known {
		lag, retained := max(0, int64(h.flush)-int64(confirmed)), keeps(h.slot, h.flush)
		st.ServerLSN, st.SlotLagBytes, st.RetainedBytes = h.flush.String(), &lag, &retained
		st.WALStatus = h.slot.WALStatus
		st.SafeWALBytes, st.SlotPID = h.slot.SafeWALSize, h.slot.ActivePID
		st.Forecast = h.trend.forecast(h.slot.SafeWALSize, h.heldBack())
	}
	return st
}

// heldBack says who keeps the slot where it is. The caller holds mu.
func (h *Health) heldBack() string {
	if h.keptBy != "" {
		return h.keptBy
	}
	return fmt.Sprintf("this connector: what pid %d sends it is not confirmed", h.slot.ActivePID)
}

// keeps is how much log the slot keeps.
func keeps(slot catalog.Slot, flush pg.LSN) int64 {
	return max(0, int64(flush)-int64(slot.RestartLSN))
}

// Remedies are what to do about the reasons of Ready, as far as that is known.
func (h *Health) Remedies() (remedies []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.remedy != "" && (h.pgErr != "" || h.storeErr != "" || h.claimErr != "" || h.unfit != "" || h.unbound != "") {
		remedies = append(remedies, h.remedy)
	}
	if h.role.Name == session.Active && h.awaited.Waiting {
		remedies = append(remedies, h.awaited.Remedy())
	}
	if h.role.Name == session.Standby && h.orphan != 0 {
		remedies = append(remedies, h.orphanRemedy())
	}
	if h.standsStill(time.Now()) {
		remedies = append(remedies, h.standstill.remedy(h.slotName))
	}
	return append(remedies, h.kafka.Remedies()...)
}
