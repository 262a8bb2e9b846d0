package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/httpapi"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// instancePatience bounds the questions to a running connector: it answers from
// memory, or there is none.
const instancePatience = 2 * time.Second

// InstanceStatus is what the connector says of itself that listens at http.listen
// on this machine. It knows what the servers do not show, such as a topic that an
// event waits for.
type InstanceStatus struct {
	Address string   `json:"address"`
	Role    string   `json:"role"`
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons,omitempty"` // why it is not ready
	Remedy  string   `json:"remedy,omitempty"`
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
	if err := getJSON(ctx, address, "/status", &status); err != nil {
		return nil
	}
	state, pipeline := status.instanceState, ""
	for name, candidate := range status.Pipelines {
		if candidate.reads(cfg) && candidate.Slot != "" {
			state, pipeline = candidate, "pipeline "+name+": "
		}
	}
	if !state.reads(cfg) {
		return nil
	}
	var ready struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons"`
	}
	if err := getJSON(ctx, address, "/readyz", &ready); err != nil {
		return nil
	}
	found := &InstanceStatus{Address: address, Role: state.Role}
	for _, reason := range ready.Reasons {
		if reason, ours := strings.CutPrefix(reason, pipeline); ours {
			found.Reasons = append(found.Reasons, reason)
		}
	}
	if found.Ready = len(found.Reasons) == 0; !found.Ready {
		found.Remedy = state.remedy(cfg)
	}
	return found
}

// instanceState is the part of a connector's /status that tells whose it is.
type instanceState struct {
	Role string `json:"role"`
	Slot string `json:"slot"` // empty before the first checkpoint, and in poll mode
	Mode string `json:"mode"` // of poll mode only

	MissingTopics []string `json:"missing_topics"`
	Remedy        string   `json:"remedy"` // of a connector that does not read
}

// remedy is what the connector knows to do, or the place where to look.
func (s instanceState) remedy(cfg *config.Config) string {
	switch {
	case s.Remedy != "":
		return s.Remedy
	case len(s.MissingTopics) > 0 && cfg.Sink.Kafka != nil:
		var commands []string
		for _, topic := range s.MissingTopics {
			commands = append(commands, sink.CreateCommand(*cfg.Sink.Kafka, topic))
		}
		return strings.Join(commands, "; ")
	}
	return "see the `remedy` in its log; `cdc-outbox check` looks at every requirement"
}

// reads reports whether the connector belongs to this configuration, as far as
// that shows.
func (s instanceState) reads(cfg *config.Config) bool {
	if cfg.Source.Mode == config.ModePoll {
		return s.Mode == config.ModePoll
	}
	return s.Role != "" && s.Mode == "" && (s.Slot == "" || s.Slot == cfg.Source.Slot)
}

// getJSON reads an answer of whatever status code.
func getJSON(ctx context.Context, address, path string, into any) error {
	_, body, err := httpapi.Ask(ctx, address, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// standsStill is how old the checkpoint may be while the slot is behind: an
// active connector saves a position every few seconds.
const standsStill = 30 * time.Second

// stuck says why events do not get through although the slot is being read; ""
// if they do. The connector itself knows best. Without its answer, a slot that
// is behind and an old checkpoint mean that it is stuck.
func (r *StatusReport) stuck() string {
	if i := r.Instance; i != nil {
		if i.Ready {
			return ""
		}
		return "the connector is not ready: " + strings.Join(i.Reasons, "; ")
	}
	if r.PostgreSQL == nil || r.PostgreSQL.Slot == nil || r.Checkpoint == nil {
		return ""
	}
	slot, age := r.PostgreSQL.Slot, r.Checkpoint.AgeSeconds
	if !slot.Active || slot.LagBytes == 0 || age < standsStill.Seconds() {
		return ""
	}
	return fmt.Sprintf("the slot is %s behind, and nothing has been confirmed for %s: look at /readyz of the connector, and at cdc-outbox check",
		formatBytes(slot.LagBytes), seconds(age))
}
