package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/httpapi"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/role"
)

// instancePatience bounds the questions to a running connector: it answers from
// memory, or there is none.
const instancePatience = 2 * time.Second

// InstanceStatus is what the connector says of itself that listens at http.listen
// on this machine. It knows what the servers do not show, such as a topic that an
// event waits for.
type InstanceStatus struct {
	Address string `json:"address"`
	Role    string `json:"role"`
	Ready   bool   `json:"ready"`
	// Reasons are why it is not ready, Remedies what to do: as on its page.
	Reasons  []string `json:"reasons,omitempty"`
	Remedies []string `json:"remedies,omitempty"`
}

// askInstance returns nil where nobody answers, or a program that is not ours.
func askInstance(ctx context.Context, cfg *config.Config) *InstanceStatus {
	address, ok := httpapi.Address(cfg.HTTP.Listen)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, instancePatience)
	defer cancel()
	var status struct {
		instanceState
		Pipelines map[string]instanceState `json:"pipelines"`
	}
	if _, body, err := httpapi.Ask(ctx, address, "/status"); err != nil || json.Unmarshal(body, &status) != nil {
		return nil
	}
	state := status.instanceState
	for _, candidate := range status.Pipelines {
		if candidate.reads(cfg) && candidate.Slot != "" {
			state = candidate
		}
	}
	if !state.reads(cfg) {
		return nil
	}
	return &InstanceStatus{Address: address, Role: state.Role, Ready: state.Ready, Reasons: state.Reasons, Remedies: state.Remedies}
}

// instanceState is the part of a connector's /status that tells whose it is, and
// whether events get through.
type instanceState struct {
	Role     string   `json:"role"`
	Slot     string   `json:"slot"` // empty in poll mode
	Mode     string   `json:"mode"` // of poll mode only
	Ready    bool     `json:"ready"`
	Reasons  []string `json:"reasons"`
	Remedies []string `json:"remedies"`
}

// reads reports whether the connector belongs to this configuration, as far as
// that shows.
func (s instanceState) reads(cfg *config.Config) bool {
	if cfg.Source.Mode == config.ModePoll {
		return s.Mode == config.ModePoll
	}
	return s.Role != "" && s.Mode == "" && (s.Slot == "" || s.Slot == cfg.Source.Slot)
}

// standsStill is how old the checkpoint may be while the slot is behind: an
// active connector saves a position every few seconds.
const standsStill = 30 * time.Second

// stuck says why events do not get through although the slot is being read; ""
// if they do. The connector itself knows best, unless it is a spare, which is
// ready to take over and knows nothing of the active one. Without its answer, a
// slot that is behind and an old checkpoint mean that it is stuck.
func (r *StatusReport) stuck() string {
	if i := r.Instance; i != nil && !(i.Ready && i.Role == role.Standby) {
		if i.Ready {
			return ""
		}
		return "the connector is not ready: " + strings.Join(i.Reasons, "; ")
	}
	if r.PostgreSQL == nil || r.PostgreSQL.Slot == nil {
		return ""
	}
	slot := r.PostgreSQL.Slot
	if slot.Awaits != nil {
		return slot.Awaits.Error
	}
	if r.Checkpoint == nil {
		return ""
	}
	age := r.Checkpoint.AgeSeconds
	if !slot.Active || slot.LagBytes == 0 || age < standsStill.Seconds() {
		return ""
	}
	return fmt.Sprintf("the slot is %s behind, and its last position was confirmed %s ago: look at /readyz of the connector, and at cdc-outbox check",
		formatBytes(slot.LagBytes), seconds(age))
}
