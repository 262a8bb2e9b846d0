package stream

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// A claim may take minutes, with nothing else wrong.
func TestClaimThatWaitsShows(t *testing.T) {
	h := &Health{kafka: delivery.NewDownstream(new(counts)), metrics: new(counts), role: session.Role{Tell: func(string) {}}}
	h.claiming()
	if h.claimErr == "" || h.remedy != "cdc-outbox txn list" {
		t.Errorf("claiming shows %q, %q", h.claimErr, h.remedy)
	}
	h.standby(nil)
	if h.claimErr != "" {
		t.Error("a spare shows a claim")
	}
}
