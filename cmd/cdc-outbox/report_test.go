package main

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Of a slot that is gone, PostgreSQL keeps nothing.
func TestTheEndPromisesNothingWithoutASlot(t *testing.T) {
	const keeps = "PostgreSQL keeps the events"
	if end := ending(failure.Configf("GRANT", "no right")); !strings.Contains(end, keeps) {
		t.Error(end)
	}
	_, loss := checkpoint.Verify(&checkpoint.Checkpoint{LSN: 1}, checkpoint.Server{CurrentLSN: 2})
	if !checkpoint.LacksLog(loss) {
		t.Fatal(loss)
	}
	if end := ending(failure.Configf("GRANT", "%w; no right", loss)); strings.Contains(end, keeps) || !strings.Contains(end, "until it is corrected") {
		t.Error(end)
	}
}
