package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/httpapi"
	role "github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// instancePatience bounds the questions to a running connector, which answers
// from memory, or not at all.
const instancePatience = 2 * time.Second

// InstanceStatus is the answer of the connector listening at http.listen on this
// machine. The connector knows facts hidden from the servers, such as a topic
// awaited by an event.
type InstanceStatus struct {
	Address string `json:"address"`
	Role    string `json:"role"`
	Phase   string `json:"phase,omitempty"` // empty in poll mode
	Ready   bool   `json:"ready"`
	// Reasons say why the connector is not ready, Remedies name the repair: as
	// on its page.
	Reasons  []string `json:"reasons,omitempty"`
	Remedies []string `json:"remedies,omitempty"`
}

// askInstance returns nil if no connector of ours answers.
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
	return &InstanceStatus{Address: address, Role: state.Role, Phase: state.Phase, Ready: state.Ready, Reasons: state.Reasons, Remedies: state.Remedies}
}

// instanceState is the part of a connector's /status about its configuration and
// the progress of events.
type instanceState struct {
	Role     string   `json:"role"`
	Phase    string   `json:"phase"` // empty in poll mode
	Slot     string   `json:"slot"`  // empty in poll mode
	Mode     string   `json:"mode"`  // of poll mode only
	Ready    bool     `json:"ready"`
	Reasons  []string `json:"reasons"`
	Remedies []string `json:"remedies"`
}

// reads reports whether the connector belongs to the configuration, as far as
// visible.
func (s instanceState) reads(cfg *config.Config) bool {
	if cfg.Source.Mode == config.ModePoll {
		return s.Mode == config.ModePoll
	}
	return s.Role != "" && s.Mode == "" && (s.Slot == "" || s.Slot == cfg.Source.Slot)
}

// standsStill is how old the checkpoint may be while the slot is behind: an
// active connector saves a position every few seconds.
const standsStill = 30 * time.Second

// watched is the watch on a slot that seems to stand still: after a quiet time
// the checkpoint is old, and the first event is a moment away from its
// confirmation. A position without an event is confirmed within a few seconds.
var watched = 10 * time.Second

// unspoken reports whether the slot's reader, the best source, does not answer
// here. A spare knows nothing of the active connector.
func (r *StatusReport) unspoken() bool {
	return r.Instance == nil || r.Instance.Role == role.Standby
}

// unread reports whether nobody reads a slot that is behind and has been read:
// not within the moments of a restart.
func (r *StatusReport) unread() bool {
	if r.PostgreSQL == nil || r.PostgreSQL.Slot == nil || r.Checkpoint == nil {
		return false
	}
	slot := r.PostgreSQL.Slot
	return !slot.Active && slot.LagBytes > 0 && r.Checkpoint.AgeSeconds >= standsStill.Seconds()
}

// suspect reports whether the slot is behind, with a last confirmation long ago
// or at an unknown time.
func (r *StatusReport) suspect() bool {
	if !r.unspoken() || r.PostgreSQL == nil || r.PostgreSQL.Slot == nil || r.CheckpointError != nil {
		return false
	}
	slot := r.PostgreSQL.Slot
	return slot.Active && slot.Awaits == nil && slot.LagBytes > 0 && (r.Checkpoint == nil || r.Checkpoint.AgeSeconds >= standsStill.Seconds())
}

// goesOn watches the slot for a while, and reports whether its confirmed
// position moves.
func (s *session) goesOn(ctx context.Context, v *view) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, watched)
	defer cancel()
	for backoff.Sleep(ctx, 100*time.Millisecond) == nil {
		slot, exists, err := catalog.ReadSlot(ctx, s.conn, s.cfg.Source.Slot)
		if ctx.Err() != nil {
			break
		}
		if err != nil || !exists || slot.ConfirmedFlush != v.Slot.ConfirmedFlush {
			return err == nil, err
		}
	}
	return false, nil
}

// stuck says why events do not get through from a slot with a reader; "" if they
// do. The connector itself knows best. Without its answer, or with a spare's, a
// slot at a standstill and behind means a stuck connector.
func (r *StatusReport) stuck() string {
	if !r.unspoken() {
		if r.Instance.Ready {
			return ""
		}
		return "the connector is not ready: " + strings.Join(r.Instance.Reasons, "; ")
	}
	if r.PostgreSQL == nil || r.PostgreSQL.Slot == nil {
		return ""
	}
	slot := r.PostgreSQL.Slot
	switch {
	case slot.Awaits != nil:
		return slot.Awaits.Error
	case !r.still:
		return ""
	case r.Checkpoint == nil:
		return fmt.Sprintf("the slot is %s behind, and nothing has been confirmed for %s: %s", formatBytes(slot.LagBytes), watched, lookThere)
	}
	return fmt.Sprintf("the slot is %s behind, and its last position was confirmed %s ago: %s",
		formatBytes(slot.LagBytes), seconds(r.Checkpoint.AgeSeconds), lookThere)
}

const lookThere = "look at /readyz of the connector that reads it, and at cdc-outbox check"

// spare says why the answering spare could not take over; "" if it could, or
// without an answer of a spare.
func (r *StatusReport) spare() string {
	if i := r.Instance; i != nil && i.Role == role.Standby && !i.Ready {
		return "the spare that answers here is not ready: " + strings.Join(i.Reasons, "; ")
	}
	return ""
}
