package stream

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestProgress(t *testing.T) {
	const look = 2 * time.Second // between pulses
	for name, c := range map[string]struct {
		pulse func(n int) pulse // the one after n looks
		looks int
		stall string // what is said in the end; "" for nothing
		age   time.Duration
	}{
		"an idle server": {
			pulse: func(int) pulse { return pulse{flush: 100, received: 100, position: 100, confirmed: 100} }, looks: 60},
		"a server that writes a little, and positions saved now and then": {
			pulse: func(n int) pulse {
				return pulse{flush: pg.LSN(100 + n), received: pg.LSN(100 + n), position: pg.LSN(100 + n), confirmed: pg.LSN(100 + n/2*2 - 2)}
			}, looks: 60, age: 2 * look},
		"a steady stream, with something in flight at each look": {
			pulse: func(n int) pulse {
				l := pg.LSN(100 * n)
				return pulse{flush: l + 50, received: l + 40, position: l + 20, confirmed: l, inFlight: 3, handled: uint64(n)}
			}, looks: 60, age: look},
		"a huge transaction, of which the position knows nothing yet": {
			pulse: func(n int) pulse {
				return pulse{flush: 1000, received: 100, position: 100, confirmed: 100, inFlight: 9, handled: uint64(n)}
			}, looks: 60, age: 59 * look},
		"nothing arrives": {
			pulse: func(int) pulse { return pulse{flush: 1000, received: 100, position: 100, confirmed: 100} },
			looks: 60, stall: "nothing has arrived", age: 59 * look},
		"nothing arrives, but for less than the limit": {
			pulse: func(int) pulse { return pulse{flush: 1000, received: 100, position: 100, confirmed: 100} },
			looks: 6, age: 5 * look},
		"nothing is acked": {
			pulse: func(n int) pulse {
				return pulse{flush: pg.LSN(1000 + n), received: 500, position: 100, confirmed: 100, inFlight: 9}
			}, looks: 60, stall: "nothing has arrived", age: 59 * look},
		"the position is pinned while the log goes on": {
			pulse: func(n int) pulse {
				return pulse{flush: pg.LSN(1000 + n), received: pg.LSN(1000 + n), position: 100, confirmed: 100, handled: uint64(n)}
			}, looks: 60, stall: "nothing is in flight", age: 59 * look},
		"no position can be saved while events are acked": {
			pulse: func(n int) pulse {
				l := pg.LSN(1000 + n)
				return pulse{flush: l, received: l, position: l, confirmed: 100, handled: uint64(n)}
			}, looks: 60, stall: "has not been saved", age: 59 * look},
	} {
		t.Run(name, func(t *testing.T) {
			p := progress{limit: usual.stalled}
			now := time.Unix(0, 0)
			p.begin(now)
			for n := range c.looks {
				p.see(now, c.pulse(n))
				now = now.Add(look)
			}
			now = now.Add(-look)
			if got := p.stall(now); (got == "") != (c.stall == "") || !strings.Contains(got, c.stall) {
				t.Errorf("says %q, want %q", got, c.stall)
			}
			if got := p.unconfirmed(now); got > c.age || c.stall != "" && got < c.age {
				t.Errorf("the oldest is unconfirmed for %s, want %s", got, c.age)
			}
		})
	}
}

// Readiness says what stands still, also where nothing has failed, and that the
// monitor cannot look.
func TestReadinessIsDerivedFromProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		router, err := transform.New(transform.DefaultEvent(), transform.DefaultRoute())
		if err != nil {
			t.Fatal(err)
		}
		r := New(Parts{Options: defaultOptions(), Router: router, Sink: &gate{}, Store: &fakeStore{}, Metrics: &counts{}, Kafka: delivery.NewDownstream(&counts{}), Log: zap.NewNop()})
		h := r.Health()
		ready := func(want string) {
			t.Helper()
			ok, reasons := h.Ready()
			if got := strings.Join(reasons, "; "); ok != (want == "") || !strings.Contains(got, want) {
				t.Errorf("ready %v: %q, want %q", ok, got, want)
			}
		}
		if err := r.checkpointer.begin(t.Context(), checkpoint.Checkpoint{LSN: 100, Epoch: 1}); err != nil {
			t.Fatal(err)
		}
		h.active()
		ready("")
		for range 10 {
			pass(usual.monitor)
			h.slotSeen(catalog.Slot{}, 100)
			ready("")
		}
		for range 10 {
			pass(usual.monitor)
			h.slotSeen(catalog.Slot{}, 500) // and nothing comes of it
		}
		ready("nothing has arrived")
		if got := h.Status().(Status).OldestUnconfirmedSeconds; got < usual.stalled.Seconds() {
			t.Errorf("the oldest is unconfirmed for %v s", got)
		}
		if err := r.tracker.Keepalive(500); err != nil {
			t.Fatal(err)
		}
		if err := r.checkpointer.advance(t.Context()); err != nil {
			t.Fatal(err)
		}
		ready("")
		pass(usual.stalled + time.Second)
		ready("could not be looked at")
		h.standby()
		ready("")
	})
}
