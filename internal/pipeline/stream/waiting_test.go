package stream

import (
	"slices"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
)

// A claim may take minutes, in which nothing else is wrong.
func TestClaimThatWaitsShows(t *testing.T) {
	h := &Health{kafka: delivery.NewDownstream(new(counts)), metrics: new(counts)}
	h.claiming()
	if h.claimErr == "" || !slices.Contains(h.Remedies(), "cdc-outbox txn list") {
		t.Errorf("claiming shows %q, %v", h.claimErr, h.Remedies())
	}
	h.standby()
	if h.claimErr != "" {
		t.Error("a spare shows a claim")
	}
}
