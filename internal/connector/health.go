package connector

import (
	"sync"

	"github.com/cdc-outbox/cdc-outbox/internal/httpapi"
)

var _ httpapi.Health = (*health)(nil)

// health answers for the relay, and before there is one, for its beginnings.
// It is safe for concurrent use.
type health struct {
	mu      sync.Mutex
	relay   httpapi.Health // nil until the relay runs
	waiting string         // why it does not run yet
}

func (h *health) set(relay httpapi.Health) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relay = relay
}

// waitFor notes why the relay does not run yet.
func (h *health) waitFor(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = err.Error()
}

func (h *health) current() (relay httpapi.Health, waiting string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.relay, h.waiting
}

// Live is well before the relay runs: a restart does not bring a broker back.
func (h *health) Live() error {
	if relay, _ := h.current(); relay != nil {
		return relay.Live()
	}
	return nil
}

func (h *health) Ready() (ok bool, reasons []string) {
	relay, waiting := h.current()
	if relay != nil {
		return relay.Ready()
	}
	reasons = []string{"role is starting"}
	if waiting != "" {
		reasons = append(reasons, waiting)
	}
	return false, reasons
}

func (h *health) Status() any {
	relay, waiting := h.current()
	if relay != nil {
		return relay.Status()
	}
	return struct {
		Role    string `json:"role"`
		Waiting string `json:"waiting_for,omitempty"`
	}{"starting", waiting}
}
