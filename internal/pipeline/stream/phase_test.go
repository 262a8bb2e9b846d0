package stream

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"
)

// firstPhase is the first phase of a pipeline that tells nobody.
func firstPhase() *phase.Machine { return phase.New(true, func(_, _ phase.Phase) {}) }

// Without the slot no step is due, and no server is asked.
func TestNoStepWithoutTheSlot(t *testing.T) {
	s := &source{phase: firstPhase()}
	if err := s.begin(t.Context(), nil, &acquired{}); err == nil {
		t.Error("began an epoch without the slot")
	}
	if now := s.phase.Now(); now != phase.Connecting {
		t.Errorf("now %s", now)
	}
}
