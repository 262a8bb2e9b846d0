package e2e

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// TestE2EEveryEventOnceAndAsWritten is life without trouble.
func TestE2EEveryEventOnceAndAsWritten(t *testing.T) { everyEventOnce(t, toTable) }

func everyEventOnce(t *testing.T, ways ways) {
	w := newWorld(t, options{ways: ways})
	c := w.start()
	load := w.write(seed(t), 8*time.Millisecond, 0)
	load.await(2500)
	h, report := w.finish(load, c)
	w.wantNoneAgain(report, "without a reason")
	w.wantDrained(h)
}

// TestE2ERefusedEventsBecomeDeadLetters gives the broker payloads over the topics'
// limit, in the midst of others (failure modes 29 to 31).
func TestE2ERefusedEventsBecomeDeadLetters(t *testing.T) {
	w := newWorld(t, options{}.refusing(50_000))
	c := w.start()
	load := w.write(seed(t), 8*time.Millisecond, 50_000)
	load.await(1000)
	_, report := w.finish(load, c)
	w.wantNoneAgain(report, "without a reason")
	if letters := w.ends()[deadLetter][0]; letters == 0 {
		t.Error("no payload was over the limit")
	}
}

// wantDrained wants the slot to be beyond everything delivered, once the server
// has read the ended connector's last message.
func (w *world) wantDrained(h checker.History) {
	w.t.Helper()
	var last pglogrepl.LSN
	for _, rec := range h.Records {
		for _, header := range rec.Headers {
			if header.Key == "cdc-lsn" {
				lsn := must.Get(pglogrepl.ParseLSN(header.Value))(w.t)
				last = max(last, lsn)
			}
		}
	}
	var s slotState
	read := func() (ok bool) { s, ok = w.look(); return ok && (s.pid == 0 || s.confirmed > last) }
	await.Until(w.t, "end of the slot's reader", read)
	if s.confirmed <= last {
		w.t.Errorf("after the drain the slot is confirmed to %s, the last event is at %s", s.confirmed, last)
	}
}
