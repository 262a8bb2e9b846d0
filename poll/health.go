package poll

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/relay"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// Metrics is told what happens; package internal/metrics implements it. Its
// methods are called from several goroutines and must not block. Those that
// relay.Metrics has too mean the same.
type Metrics interface {
	Published(events []*transform.Event)
	DeadLettered(reason transform.Reason)
	Skipped(reason transform.Reason)
	Warned(w transform.Warning)
	Reconnected(side string)
	Connected(side string, ok bool)
	Capacity(bytes int64)
	Role(role string)
	TopicsMissing(n int)
	Observe(received, confirmed func() wal.LSN, inFlightEvents, inFlightBytes func() int64)
	// Backlog is told how many rows wait, counted up to BacklogCounted, and the
	// age of the oldest; once in a while.
	Backlog(rows int64, oldest time.Duration)
}

// Status is what /status shows.
type Status struct {
	Role            string    `json:"role"`
	RoleSince       time.Time `json:"role_since"`
	Mode            string    `json:"mode"`
	UnpublishedRows int64     `json:"unpublished_rows"` // counted up to BacklogCounted
	OldestSeconds   float64   `json:"oldest_unpublished_seconds"`
	BacklogAt       time.Time `json:"backlog_at"` // when the two were looked at
	InFlightEvents  int64     `json:"in_flight_events"`
	InFlightBytes   int64     `json:"in_flight_bytes"`
	Notifications   bool      `json:"notifications"` // whether they arrive
	MissingTopics   []string  `json:"missing_topics,omitempty"`
	PostgresError   string    `json:"postgres_error,omitempty"`
	KafkaError      string    `json:"kafka_error,omitempty"`
	UnackedSeconds  float64   `json:"unacked_seconds,omitempty"`
	HeldElsewhere   int64     `json:"held_by_other_sessions,omitempty"`
	// LastEvent is nil before the first one of this process.
	LastEvent *relay.LastEvent `json:"last_event,omitempty"`
}

// stuckAfter is how long a delivery may take until readiness says so.
const stuckAfter = 10 * time.Second

// Health collects what the connector knows of its own state. It is safe for
// concurrent use.
type Health struct {
	metrics Metrics

	mu      sync.Mutex
	role    string
	since   time.Time
	missing map[string]bool
	pgErr   string // of the first worker
	brokers string // why they do not answer; "" if they do
	notices bool
	backlog Backlog
	looked  time.Time
	relay   *Relay // nil until New
}

// NewHealth returns the state of a connector that New has yet to wire. Only
// TopicWaiting and Brokers may be called before.
func NewHealth(m Metrics) *Health {
	h := &Health{metrics: m, missing: map[string]bool{}}
	h.setRole(relay.RoleStarting)
	return h
}

func (h *Health) attach(r *Relay) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relay = r
}

func (h *Health) setRole(role string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role != role {
		h.role, h.since = role, time.Now()
		h.metrics.Role(role)
	}
}

// postgres notes that the first worker's connection works (nil), or why not. The
// others' do not matter: one worker can do it all, and the others connect only
// while there is a backlog.
func (h *Health) postgres(err error) {
	role, text := relay.RoleActive, ""
	if err != nil {
		role, text = relay.RoleStarting, err.Error()
	}
	h.mu.Lock()
	h.pgErr = text
	h.mu.Unlock()
	h.metrics.Connected("postgres", err == nil)
	h.setRole(role)
}

// Brokers notes that Kafka answers (nil), or why it does not.
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
	if missing {
		h.missing[topic] = true
	} else {
		delete(h.missing, topic)
	}
	h.metrics.TopicsMissing(len(h.missing))
}

// missingTopics lists the topics that delivery waits for.
func (h *Health) missingTopics() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.missing))
}

// sinkRenewed forgets the topics that a former sink waited for.
func (h *Health) sinkRenewed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.missing)
	h.metrics.TopicsMissing(0)
}

func (h *Health) listening(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notices = on
}

func (h *Health) backlogSeen(b Backlog) {
	h.mu.Lock()
	h.backlog, h.looked = b, time.Now()
	h.mu.Unlock()
	h.metrics.Backlog(b.Rows, b.Oldest)
}

// Live is always nil while the process can answer: a dead broker is no reason
// to restart it.
func (h *Health) Live() error { return nil }

// Ready reports whether events flow, or would if there were any.
func (h *Health) Ready() (ok bool, reasons []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role != relay.RoleActive {
		reasons = append(reasons, "role is "+h.role)
	}
	switch {
	case h.pgErr != "":
		reasons = append(reasons, "PostgreSQL: "+h.pgErr)
	case h.role == relay.RoleStarting:
		reasons = append(reasons, "PostgreSQL: no connection yet")
	}
	if h.brokers != "" {
		reasons = append(reasons, "Kafka: "+h.brokers)
	}
	if h.relay != nil {
		if d := h.relay.outlet.stuck(); d > stuckAfter {
			reasons = append(reasons, fmt.Sprintf("no acknowledgement for a delivery since %s", d.Round(time.Second)))
		}
	}
	for _, t := range slices.Sorted(maps.Keys(h.missing)) {
		reasons = append(reasons, "topic does not exist: "+t)
	}
	return len(reasons) == 0, reasons
}

// Status returns a Status.
func (h *Health) Status() any {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := Status{
		Role:            h.role,
		RoleSince:       h.since,
		Mode:            "poll",
		UnpublishedRows: h.backlog.Rows,
		OldestSeconds:   h.backlog.Oldest.Seconds(),
		BacklogAt:       h.looked,
		Notifications:   h.notices,
		MissingTopics:   slices.Sorted(maps.Keys(h.missing)),
		PostgresError:   h.pgErr,
		KafkaError:      h.brokers,
	}
	if r := h.relay; r != nil {
		st.InFlightEvents, st.InFlightBytes = r.inFlightEvents.Load(), r.inFlightBytes.Load()
		st.UnackedSeconds = r.outlet.stuck().Seconds()
		st.HeldElsewhere = r.heldBack.Load()
		st.LastEvent = r.delivery.last.Load()
	}
	return st
}
