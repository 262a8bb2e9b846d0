package relay

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// Roles of an instance.
const (
	RoleStarting = "starting" // not yet streaming
	RoleStandby  = "standby"  // a warm spare: another instance holds the slot
	RoleActive   = "active"
	RoleStopping = "stopping"
)

// Status is what /status shows.
type Status struct {
	Role           string    `json:"role"`
	RoleSince      time.Time `json:"role_since"`
	Slot           string    `json:"slot"`
	ReceivedLSN    string    `json:"received_lsn"`
	ConfirmedLSN   string    `json:"confirmed_lsn"`
	ServerLSN      string    `json:"server_lsn,omitempty"`
	SlotLagBytes   int64     `json:"slot_lag_bytes"`
	SlotLagSeconds float64   `json:"slot_lag_seconds"`
	RetainedBytes  int64     `json:"slot_retained_bytes"`
	WALStatus      string    `json:"wal_status,omitempty"`
	InFlightEvents int       `json:"in_flight_events"`
	InFlightBytes  int64     `json:"in_flight_bytes"`
	MissingTopics  []string  `json:"missing_topics,omitempty"`
	PostgresError  string    `json:"postgres_error,omitempty"`
	KafkaError     string    `json:"kafka_error,omitempty"`
	UnackedSeconds float64   `json:"unacked_seconds,omitempty"`
	// LastEvent is nil before the first one of this process.
	LastEvent *LastEvent `json:"last_event,omitempty"`
	// OldestUnconfirmedSeconds is for how long the server has had something that
	// is not confirmed.
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

// stuckAfter is how long a delivery may take until readiness says so.
const stuckAfter = 10 * time.Second

// Health collects what the connector knows of its own state. It is safe for
// concurrent use.
type Health struct {
	metrics  Metrics
	queue    *queue
	tracker  *checkpoint.Locked
	keeper   *keeper
	delivery *delivery
	intake   *intake
	// statusInterval is how often the stream's server is asked for an answer.
	statusInterval time.Duration

	retention *retentionHealth

	mu      sync.Mutex
	role    string
	since   time.Time
	slot    wal.Slot
	flush   wal.LSN
	missing []string
	pgErr   string
	brokers string // why they do not answer; "" if they do
	// storeErr is why the checkpoint store does not serve a spare, or a session.
	storeErr string
	// While the role is active:
	progress progress
	looked   time.Time // when slot and publication were last seen
}

// NewHealth returns the state of a connector that New has yet to wire. Only
// TopicWaiting and Brokers may be called before.
func NewHealth(m Metrics) *Health {
	h := &Health{metrics: m, retention: &retentionHealth{Observer: m}}
	h.setRole(RoleStarting)
	return h
}

// setRole reports whether the role is new. It needs mu, but for a Health that
// nobody else has yet.
func (h *Health) setRole(role string) (changed bool) {
	if h.role == role {
		return false
	}
	h.role, h.since = role, time.Now()
	h.metrics.Role(role)
	return true
}

func (h *Health) active() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.setRole(RoleActive)
	h.pgErr, h.storeErr, h.flush, h.looked = "", "", 0, time.Now()
	h.progress.begin(h.looked)
}

// standby reports whether the role is new.
func (h *Health) standby() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pgErr, h.storeErr = "", ""
	return h.setRole(RoleStandby)
}

func (h *Health) stopping() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.setRole(RoleStopping)
}

// down notes why there is no session.
func (h *Health) down(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.setRole(RoleStarting)
	h.pgErr, h.storeErr = err.Error(), ""
	if ofStore(err) {
		h.pgErr, h.storeErr = "", err.Error()
		return
	}
	h.metrics.Connected("postgres", false)
}

// Brokers notes that Kafka answers (nil), or why it does not, whatever the role:
// a spare without brokers could not take over.
func (h *Health) Brokers(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.brokers = ""
	if err != nil {
		h.brokers = err.Error()
	}
	h.metrics.Connected("kafka", err == nil)
}

// TopicWaiting notes a topic that delivery waits for, or that it is there now.
func (h *Health) TopicWaiting(topic string, missing bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.missing = slices.DeleteFunc(h.missing, func(t string) bool { return t == topic })
	if missing {
		h.missing = append(h.missing, topic)
	}
	h.metrics.TopicsMissing(len(h.missing))
}

// missingTopics lists the topics that delivery waits for.
func (h *Health) missingTopics() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.missing)
}

// slotSeen notes what the server said of the slot.
func (h *Health) slotSeen(slot wal.Slot, flush wal.LSN) {
	h.mu.Lock()
	h.slot, h.flush, h.looked = slot, flush, time.Now()
	h.advance(h.looked)
	h.mu.Unlock()
	h.metrics.Slot(slot, flush, h.delivery.lag())
}

// Live is always nil while the process can answer: a dead broker is no reason
// to restart it.
func (h *Health) Live() error { return nil }

// Ready reports whether events flow, or would if there were any; a warm spare
// is ready, or a rolling update would never end.
func (h *Health) Ready() (ok bool, reasons []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role != RoleActive && h.role != RoleStandby {
		reasons = append(reasons, "role is "+h.role)
	}
	if h.pgErr != "" {
		reasons = append(reasons, "PostgreSQL: "+h.pgErr)
	}
	if h.brokers != "" {
		reasons = append(reasons, "Kafka: "+h.brokers)
	}
	if h.storeErr != "" {
		reasons = append(reasons, h.storeErr)
	}
	if d := h.delivery.stuck(); d > stuckAfter {
		reasons = append(reasons, fmt.Sprintf("no acknowledgement for a delivery since %s", d.Round(time.Second)))
	}
	if reason, unsaved := h.keeper.progress.unready(); unsaved && h.role == RoleActive {
		reasons = append(reasons, reason)
	}
	for _, t := range h.missing {
		reasons = append(reasons, "topic does not exist: "+t)
	}
	if h.role == RoleActive {
		reasons = append(reasons, h.stalled(time.Now(), len(reasons) > 0)...)
	}
	return len(reasons) == 0, reasons
}

// advance takes note of how far everything is now. It needs mu.
func (h *Health) advance(now time.Time) {
	h.progress.see(now, pulse{
		flush:     h.flush,
		received:  h.received(),
		position:  h.tracker.Position(),
		confirmed: h.confirmed(),
		inFlight:  h.tracker.InFlight(),
		handled:   h.intake.changes.Load() + h.delivery.settled.Load(),
	})
}

// stalled lists what stands still, unless the reason is known. It needs mu.
func (h *Health) stalled(now time.Time, known bool) (reasons []string) {
	h.advance(now)
	switch why, silent := h.progress.stall(now), h.silent(); {
	case known:
	case why != "":
		reasons = append(reasons, why)
	case silent > h.statusInterval+stalledAfter:
		reasons = append(reasons, fmt.Sprintf("the stream has been silent for %s, although the server is asked for an answer", silent.Round(time.Second)))
	}
	if blind := now.Sub(h.looked); blind > stalledAfter {
		reasons = append(reasons, fmt.Sprintf("slot and publication could not be looked at for %s", blind.Round(time.Second)))
	}
	return reasons
}

// unconfirmed is for how long the server has had something that is not
// confirmed; 0 unless this instance is active.
func (h *Health) unconfirmed() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role != RoleActive {
		return 0
	}
	now := time.Now()
	h.advance(now)
	return h.progress.unconfirmed(now)
}

// silent is for how long the stream has waited for any word of the server.
func (h *Health) silent() time.Duration {
	if s := h.keeper.stream.Load(); s != nil {
		return s.Silent()
	}
	return 0
}

func (h *Health) received() wal.LSN {
	if s := h.keeper.stream.Load(); s != nil {
		return s.Received()
	}
	return 0
}

func (h *Health) confirmed() wal.LSN { return wal.LSN(h.keeper.saved.Load()) }

// checkpointAge is 0 for a spare: what it has not saved is another instance's to
// publish again.
func (h *Health) checkpointAge() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role == RoleStandby {
		return 0
	}
	return h.keeper.progress.age()
}

func (h *Health) inFlight() int64 { return int64(h.tracker.InFlight()) }

// Status returns a Status.
func (h *Health) Status() any {
	unconfirmed, age := h.unconfirmed(), h.checkpointAge()
	received, confirmed := h.received(), h.confirmed()
	failing, saveErr := h.keeper.progress.trouble()
	h.mu.Lock()
	defer h.mu.Unlock()
	st := Status{
		Role:           h.role,
		RoleSince:      h.since,
		Slot:           h.keeper.last().Slot,
		ReceivedLSN:    received.String(),
		ConfirmedLSN:   confirmed.String(),
		SlotLagSeconds: h.delivery.lag().Seconds(),
		InFlightEvents: h.tracker.InFlight(),
		InFlightBytes:  h.queue.bytes(),
		MissingTopics:  slices.Clone(h.missing),
		PostgresError:  h.pgErr,
		KafkaError:     h.brokers,
		UnackedSeconds: h.delivery.stuck().Seconds(),
		Retention:      h.retention.status(),
		LastEvent:      h.delivery.last.Load(),

		OldestUnconfirmedSeconds: unconfirmed.Seconds(),
		CheckpointAgeSeconds:     age.Seconds(),
		CheckpointError:          cmp.Or(saveErr, h.storeErr),
	}
	if saveErr != "" || failing > unsavedAfter {
		st.CheckpointFailingSeconds = failing.Seconds()
	}
	if h.flush != 0 {
		st.ServerLSN = h.flush.String()
		st.SlotLagBytes = max(0, int64(h.flush)-int64(confirmed))
		st.RetainedBytes = max(0, int64(h.flush)-int64(h.slot.RestartLSN))
		st.WALStatus = h.slot.WALStatus
	}
	return st
}
