package pipeline

import (
	"sync"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/httpapi"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
)

var (
	_ httpapi.Health = (*health)(nil)
	_ httpapi.Health = allHealth(nil)
)

// health answers /livez, /readyz and /status for one pipeline: before it runs,
// while it runs, and after it has failed. It is safe for concurrent use.
type health struct {
	command invocation.Invocation // completes the commands in remedies

	mu      sync.Mutex
	source  httpapi.Health // nil unless the pipeline runs
	waiting string         // why it does not run yet
	silent  error          // why brokers do not answer; nil if they do
	failed  error          // why it needs a person before it runs again
}

func (h *health) set(pipeline httpapi.Health) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.source, h.waiting, h.failed = pipeline, "", nil
}

// waitFor notes why the pipeline does not run yet, or not now.
func (h *health) waitFor(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.source, h.waiting = nil, err.Error()
}

// brokers notes that Kafka answers (nil), or why it does not.
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

func (h *health) current() (pipeline httpapi.Health, idle idle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.source != nil:
		return h.source, idle
	case h.failed != nil:
		idle.Role, idle.Error, idle.Remedy = roleFailed, h.failed.Error(), failure.RemedyOf(h.failed)
	default:
		idle.Role, idle.Waiting = "starting", h.waiting
		if h.waiting == "" && h.silent != nil {
			idle.Waiting, idle.Remedy = "Kafka: "+h.silent.Error(), failure.RemedyOf(h.silent)
		}
	}
	idle.Remedy = h.command.In(idle.Remedy)
	return nil, idle
}

// idle is what /status shows while the pipeline does not run.
type idle struct {
	Role    string `json:"role"`
	Waiting string `json:"waiting_for,omitempty"`
	Error   string `json:"error,omitempty"`
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
	pipeline, idle := h.current()
	if pipeline != nil {
		return pipeline.Ready()
	}
	reasons = []string{"role is " + idle.Role}
	for _, reason := range []string{idle.Waiting, idle.Error} {
		if reason != "" {
			reasons = append(reasons, reason)
		}
	}
	return false, reasons
}

func (h *health) Status() any {
	pipeline, idle := h.current()
	if pipeline != nil {
		return pipeline.Status()
	}
	return idle
}

// allHealth speaks for several pipelines, naming each.
type allHealth []*pipeline

// Live returns the first pipeline's reason for a restart.
func (all allHealth) Live() error {
	for _, p := range all {
		if err := p.health.Live(); err != nil {
			return err
		}
	}
	return nil
}

// Ready reports whether all pipelines are ready.
func (all allHealth) Ready() (ok bool, reasons []string) {
	for _, p := range all {
		_, because := p.health.Ready()
		for _, reason := range because {
			reasons = append(reasons, "pipeline "+p.name+": "+reason)
		}
	}
	return len(reasons) == 0, reasons
}

// Status returns the status of each pipeline by its name.
func (all allHealth) Status() any {
	pipelines := make(map[string]any, len(all))
	for _, p := range all {
		pipelines[p.name] = p.health.Status()
	}
	return map[string]any{"pipelines": pipelines}
}
