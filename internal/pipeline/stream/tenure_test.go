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
	if got := tenure.from(at); got != at.Add(9*time.Second) {
		t.Errorf("it ends %s after what the server has received was sent", time.Duration(got-at))
	}
	if got := tenure.answered(at); got != at.Add(4*time.Second) {
		t.Errorf("it ends %s after an answer", time.Duration(got-at))
	}
	if got := tenure.often(time.Minute); got != 2500*time.Millisecond {
		t.Errorf("it is renewed every %s", got)
	}
	tenure.process.Timeout = 0
	if tenure.from(at) != lease.Never || tenure.answered(at) != lease.Never || tenure.often(time.Minute) != time.Minute {
		t.Error("it ends, though the server waits for ever")
	}
}
