package stream

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
)

func TestTenureEndsBeforeTheServerFreesTheSlot(t *testing.T) {
	at := lease.Instant(time.Hour)
	tenure := tenure{process: catalog.OwnSender{Timeout: 10 * time.Second}}
	if got := tenure.until(at, at.Add(time.Second)); got != at.Add(9*time.Second) {
		t.Errorf("it ends %s after what the server has received was sent", time.Duration(got-at))
	}
	if got := tenure.answered(at); got != at.Add(4*time.Second) {
		t.Errorf("it ends %s after an answer", time.Duration(got-at))
	}
	if got := tenure.often(time.Minute); got != 2500*time.Millisecond {
		t.Errorf("it is renewed every %s", got)
	}
	for _, timeout := range []time.Duration{0, time.Minute} {
		tenure.process.Timeout = timeout
		if got := tenure.until(at, at.Add(time.Second)); got != at.Add(time.Second+longest) {
			t.Errorf("with a timeout of %s it ends %s after the question", timeout, time.Duration(got-at)-time.Second)
		}
		if got := tenure.answered(at); got != at.Add(longest) {
			t.Errorf("with a timeout of %s it ends %s after an answer", timeout, time.Duration(got-at))
		}
	}
	tenure.process.Timeout = 0
	if tenure.often(time.Minute) != time.Minute {
		t.Error("often, though the server waits for ever")
	}
}
