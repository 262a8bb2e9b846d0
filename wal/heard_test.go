package wal

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lease"
)

// Times are in seconds on our clock; the server's is an hour ahead. The stream was
// asked for at second 100.
func TestAnswersAreNeverTakenForYounger(t *testing.T) {
	at := func(seconds int) lease.Instant { return lease.Instant(time.Duration(seconds) * time.Second) }
	for name, answers := range map[string][]struct {
		sent, read int // by our clock
		ahead      time.Duration
		want       int
	}{
		"read at once":           {{101, 101, time.Hour, 100}, {110, 110, time.Hour, 109}},
		"waited in the socket":   {{101, 101, time.Hour, 100}, {110, 190, time.Hour, 109}, {191, 191, time.Hour, 190}},
		"the first waited":       {{101, 190, time.Hour, 100}, {191, 191, time.Hour, 190}},
		"a clock is set forward": {{101, 101, time.Hour, 100}, {110, 110, 2 * time.Hour, 110}, {120, 190, 2 * time.Hour, 120}},
		"a clock is set back":    {{101, 101, time.Hour, 100}, {110, 110, time.Hour - 5*time.Second, 104}},
	} {
		t.Run(name, func(t *testing.T) {
			var h heard
			for _, a := range answers {
				h.answer(time.Duration(at(a.sent))+a.ahead, at(100), at(a.read))
				if got := lease.Instant(h.last.Load()); got != at(a.want) {
					t.Errorf("the answer of second %d, read in second %d, is taken for one of %s", a.sent, a.read, time.Duration(got))
				}
			}
		})
	}
}
