package pipeline

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/httpapi"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
	"github.com/cdc-outbox/cdc-outbox/internal/tracing"
)

var _ httpapi.Health = (*health)(nil)

// health answers /livez, /readyz and /status for a single pipeline: before it
// runs, while it runs, and after it has failed. It is safe for concurrent use.
type health struct {
	command invocation.Invocation // completes the commands in remedies
	spans   *tracing.Exporter     // nil: no spans are exported

	mu      sync.Mutex
	source  source    // nil unless the pipeline runs
	waiting error     // why the pipeline does not run yet
	silent  error     // why brokers do not answer; nil if they do
	failed  error     // why the pipeline needs a person before another run
	verdict bool      // at the last question
	since   time.Time // when the verdict was new
}

// source is the health of a running pipeline.
type source interface {
	httpapi.Health
	// Remedies are for the reasons of Ready, as far as known.
	Remedies() []string
}

func (h *health) set(pipeline source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.source, h.waiting, h.failed = pipeline, nil, nil
}

// waitFor notes why the pipeline does not run yet, or not now.
func (h *health) waitFor(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.source, h.waiting = nil, err
}

// brokers notes that Kafka answers (nil), or why not.
func (h *health) brokers(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent = err
}

// fail notes why the pipeline will not run again without a person's help.
func (h *health) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.source, h.failed = nil, err
}

func (h *health) current() (pipeline source, idle idle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.source != nil:
		return h.source, idle
	case h.failed != nil:
		idle.Role, idle.Error, idle.Remedy = roleFailed, h.failed.Error(), failure.RemedyOf(h.failed)
		idle.Loss = failure.ClassOf(h.failed) == failure.Loss
	case h.waiting != nil:
		idle.Role, idle.Waiting, idle.Remedy = "starting", h.waiting.Error(), failure.RemedyOf(h.waiting)
	case h.silent != nil:
		idle.Role, idle.Waiting, idle.Remedy = "starting", "Kafka: "+h.silent.Error(), failure.RemedyOf(h.silent)
	default:
		idle.Role = "starting"
	}
	idle.Remedy = h.command.In(idle.Remedy)
	return nil, idle
}

// idle is the content of /status while the pipeline does not run.
type idle struct {
	Role    string `json:"role"`
	Waiting string `json:"waiting_for,omitempty"`
	Error   string `json:"error,omitempty"`
	Loss    bool   `json:"loss,omitempty"` // events may be lost: not just a setting is wrong
	Remedy  string `json:"remedy,omitempty"`
}

// Live returns nil while the pipeline does not run: a restart of the process
// would bring back neither a broker nor a lost slot.
func (h *health) Live() error {
	if pipeline, _ := h.current(); pipeline != nil {
		return pipeline.Live()
	}
	return nil
}

func (h *health) Ready() (ok bool, reasons []string) {
	st := h.standing()
	return st.Ready, st.Reasons
}

// standing is whether events get through, since when, and the remedy: a part of the status
// of each pipeline.
type standing struct {
	Ready bool `json:"ready"`
	// ReadySince is since when Ready has had its value, as far as anybody asked.
	ReadySince time.Time `json:"ready_since"`
	Reasons    []string  `json:"reasons"`
	Remedies   []string  `json:"remedies"`
	// Tracing is of the whole process.
	Tracing *tracing.Status `json:"tracing,omitempty"`
}

// look is the remedy if no other names a command.
const look = "`cdc-outbox check` looks at every requirement of both sides"

func (h *health) standing() standing {
	st := standing{Reasons: []string{}, Remedies: []string{}}
	pipeline, idle := h.current()
	if pipeline != nil {
		ok, reasons := pipeline.Ready()
		st.Ready, st.Reasons = ok, append(st.Reasons, reasons...)
		if !ok {
			st.Remedies = append(st.Remedies, pipeline.Remedies()...)
		}
	} else {
		st.Reasons = append(st.Reasons, "role is "+idle.Role)
		for _, reason := range []string{idle.Waiting, idle.Error} {
			if reason != "" {
				st.Reasons = append(st.Reasons, reason)
			}
		}
		if idle.Remedy != "" {
			st.Remedies = append(st.Remedies, idle.Remedy)
		}
	}
	if !st.Ready && !strings.Contains(strings.Join(st.Remedies, " "), "cdc-outbox ") {
		st.Remedies = append(st.Remedies, look)
	}
	for i, remedy := range st.Remedies {
		st.Remedies[i] = h.command.In(remedy)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() || h.verdict != st.Ready {
		h.verdict, h.since = st.Ready, time.Now()
	}
	st.ReadySince = h.since
	return st
}

// Status returns the content of /status: the standing, and the status of the source.
func (h *health) Status() any {
	pipeline, idle := h.current()
	st := h.standing()
	st.Tracing = h.spans.Status()
	if pipeline != nil {
		return whole{st, pipeline.Status()}
	}
	return whole{st, idle}
}

// whole is a single JSON object of two.
type whole struct {
	standing standing
	detail   any
}

func (w whole) MarshalJSON() ([]byte, error) {
	first, err := json.Marshal(w.standing)
	if err != nil {
		return nil, err
	}
	second, err := json.Marshal(w.detail)
	if err != nil {
		return nil, err
	}
	return slices.Concat(first[:len(first)-1], []byte(","), second[1:]), nil // neither is empty
}
