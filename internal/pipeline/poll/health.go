package poll

import (
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// Metrics is told of the work; package internal/metrics implements it. The methods
// are called from several goroutines and must not block.
type Metrics interface {
	delivery.Metrics
	session.Metrics
	// Backlog is told how many rows wait, counted up to BacklogCounted, and the
	// age of the oldest; once in a while.
	Backlog(rows int64, oldest time.Duration)
	// BacklogUnknown takes Backlog's values back.
	BacklogUnknown()
}

// Status is the content of /status.
type Status struct {
	delivery.Status
	Mode            string    `json:"mode"`
	UnpublishedRows int64     `json:"unpublished_rows"` // counted up to BacklogCounted
	OldestSeconds   float64   `json:"oldest_unpublished_seconds"`
	BacklogAt       time.Time `json:"backlog_at"`    // when the two were looked at
	Notifications   bool      `json:"notifications"` // whether they arrive
	HeldElsewhere   int64     `json:"held_by_other_sessions,omitempty"`
}

// silentAfter is how long a look at the tables may take until readiness says so.
const silentAfter = 12 * time.Second

// Health collects the state of the connector. It is safe for concurrent use.
type Health struct {
	kafka    *delivery.Downstream
	metrics  Metrics
	pipeline *Pipeline
	// silentAfter and stuckAfter are how long PostgreSQL and the sink may take;
	// tests have less patience.
	silentAfter, stuckAfter time.Duration

	look session.Question // the first worker's, at the tables

	mu      sync.Mutex
	role    session.Role
	pgErr   string // of the first worker
	remedy  string // of pgErr
	notices bool
	backlog Backlog
	looked  time.Time
}

func newHealth(p Parts, r *Pipeline) *Health {
	h := &Health{kafka: p.Kafka, metrics: p.Metrics, pipeline: r, silentAfter: silentAfter, stuckAfter: delivery.StuckAfter,
		role: session.Role{Tell: p.Metrics.Role}}
	h.role.Set(session.Starting)
	return h
}

func (h *Health) setRole(to string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.role.Set(to)
}

// postgres notes that the first worker's connection works (nil), or why not. The other
// connections do not matter: a single worker can do all, and others connect only
// during a backlog.
func (h *Health) postgres(err error) {
	to, text := session.Active, ""
	if err != nil {
		to, text = session.Starting, err.Error()
		h.metrics.BacklogUnknown()
	}
	h.mu.Lock()
	h.pgErr, h.remedy = text, failure.RemedyOf(err)
	h.mu.Unlock()
	h.metrics.Connected("postgres", err == nil)
	h.setRole(to)
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
// for a restart.
func (h *Health) Live() error { return nil }

// asks begins a look at the tables; the returned function ends the look.
func (h *Health) asks() func() { return h.look.Ask() }

// Ready reports whether events flow, or would if there were any.
func (h *Health) Ready() (ok bool, reasons []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role.Name != session.Active {
		reasons = append(reasons, "role is "+h.role.Name)
	}
	switch {
	case h.pgErr != "":
		reasons = append(reasons, "PostgreSQL: "+h.pgErr)
	case h.role.Name == session.Starting:
		reasons = append(reasons, "PostgreSQL: no connection yet")
	}
	reasons = append(reasons, h.look.Unready(h.silentAfter)...)
	reasons = append(reasons, h.kafka.Unready(h.pipeline.stuck(), h.stuckAfter)...)
	return len(reasons) == 0, reasons
}

// Remedies are for the reasons of Ready, as far as known.
func (h *Health) Remedies() (remedies []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.remedy != "" {
		remedies = append(remedies, h.remedy)
	}
	return append(remedies, h.kafka.Remedies()...)
}

// Status returns a Status for /status.
func (h *Health) Status() any {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.pipeline
	return Status{
		Status: h.kafka.Complete(delivery.Status{
			Role: h.role.Name, RoleSince: h.role.Since, PostgresError: h.pgErr, LastEvent: r.delivery.Last(),
			InFlightEvents: r.inFlightEvents.Load(), InFlightBytes: r.inFlightBytes.Load(), UnackedSeconds: r.sink.stuck().Seconds(),
		}),
		Mode:            "poll",
		UnpublishedRows: h.backlog.Rows,
		OldestSeconds:   h.backlog.Oldest.Seconds(),
		BacklogAt:       h.looked,
		Notifications:   h.notices,
		HeldElsewhere:   r.heldBack.Load(),
	}
}
