package e2e

import (
	"slices"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

// With source.snapshot: initial, events from before setup, from between setup
// and the first start, and from after the start arrive once each: the snapshot is
// of the position where the slot begins.
func TestE2ESnapshotAfterSetup(t *testing.T) {
	w := newWorld(t, options{direct: true, unread: true})
	w.rewriteConfig("source:\n", "source:\n  snapshot: initial\n")
	w.insertID(1, "aggregateid")
	w.run("setup")
	if _, ok := w.look(); ok {
		t.Error("setup made a slot without the snapshot of its position")
	}
	w.insertID(2, "aggregateid")
	c := w.start()
	w.insertID(3, "aggregateid")
	w.insertID(4, "aggregateid")
	got := ids(w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(4)))
	c.stop()
	if want := []string{eventID(1), eventID(2), eventID(3), eventID(4)}; !slices.Equal(got, want) {
		t.Errorf("the topic has %v, want %v", got, want)
	}
	if n := w.seriesLength(); n != 4 {
		t.Errorf("the topic has %d records, want 4", n)
	}
}
