package stream

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"
)

// firstPhase is that of a pipeline that tells nobody.
func firstPhase() *phase.Machine { return &phase.Machine{Tell: func(_, _ phase.Phase) {}} }

// A step out of order ends before it asks a server.
func TestStepsOutOfOrder(t *testing.T) {
	s := &source{phase: firstPhase(), transactions: &Transactions{}}
	if err := s.claim(t.Context()); err == nil {
		t.Error("claimed the transactional id without the slot")
	}
	if err := s.begin(t.Context(), nil, &acquired{}); err == nil {
		t.Error("began an epoch without the slot")
	}
	if now := s.phase.Now(); now != phase.Connecting {
		t.Errorf("now %s", now)
	}
}
