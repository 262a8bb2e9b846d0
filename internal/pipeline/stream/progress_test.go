package stream

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestProgress(t *testing.T) {
	const look = 2 * time.Second // between pulses
	for name, c := range map[string]struct {
		pulse func(n int) pulse // after n looks
		looks int
		stall string // reported in the end; "": none
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
				return pulse{flush: l + 50, received: l + 40, position: l + 20, confirmed: l, inFlight: 3, dealt: uint64(n)}
			}, looks: 60, age: look},
		"a huge transaction, of which the position knows nothing yet": {
			pulse: func(n int) pulse {
				return pulse{flush: 1000, received: 100, position: 100, confirmed: 100, inFlight: 9, dealt: uint64(n)}
			}, looks: 60, age: 59 * look},
		"a huge transaction, of which events are taken in": {
			pulse: func(n int) pulse {
				return pulse{flush: 1000, received: 100, position: 100, confirmed: 100, inFlight: n, arrived: uint64(n)}
			}, looks: 60, age: 59 * look},
		"a huge transaction of another table": {
			pulse: func(n int) pulse {
				return pulse{flush: 1000, received: 100, position: 100, confirmed: 100, arrived: uint64(n)}
			}, looks: 60, stall: "behind changes of other tables", age: 59 * look},
		"transactions of other tables, half as fast as they are written": {
			pulse: func(n int) pulse {
				l := pg.LSN(1000 + 5*n)
				return pulse{flush: pg.LSN(1000 + 10*n), received: l, position: l, confirmed: l, arrived: uint64(n)}
			}, looks: 61, stall: "behind changes of other tables", age: 29 * look},
		"what was acked is confirmed late, and the log goes on": {
			pulse: func(n int) pulse {
				return pulse{flush: pg.LSN(1000 + 10*n), received: pg.LSN(1000 + 10*n), position: pg.LSN(1000 + 10*n), confirmed: pg.LSN(1000 + 5*n), dealt: uint64(n)}
			}, looks: 61, age: 29 * look},
		"a standby that was behind was promoted": {
			pulse: func(n int) pulse {
				if n < 5 {
					return pulse{flush: 1000, received: 500, position: 500, confirmed: 500}
				}
				return pulse{flush: 600, received: 600, position: 600, confirmed: 600}
			}, looks: 60},

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
				return pulse{flush: pg.LSN(1000 + n), received: pg.LSN(1000 + n), position: 100, confirmed: 100, dealt: uint64(n)}
			}, looks: 60, stall: "nothing is in flight", age: 59 * look},
		"no position can be saved while events are acked": {
			pulse: func(n int) pulse {
				l := pg.LSN(1000 + n)
				return pulse{flush: l, received: l, position: l, confirmed: 100, dealt: uint64(n)}
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

// Readiness names a standstill, also without a failure, and a monitor unable to look.
func TestReadinessIsDerivedFromProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		router := must.Get(transform.New(transform.DefaultEvent(), transform.DefaultRoute()))(t)
		r := New(Parts{Options: defaultOptions(), Router: router, Sink: &gate{}, Store: &fakeStore{}, Metrics: &counts{}, Kafka: delivery.NewDownstream(&counts{}), Log: zap.NewNop()})
		h := r.Health()
		ready := func(want string) {
			t.Helper()
			ok, reasons := h.Ready()
			if got := strings.Join(reasons, "; "); ok != (want == "") || !strings.Contains(got, want) {
				t.Errorf("ready %v: %q, want %q", ok, got, want)
			}
		}
		must.OK(t, r.checkpointer.begin(t.Context(), checkpoint.Checkpoint{LSN: 100, Epoch: 1}))
		h.active(nil)
		ready("")
		for range 10 {
			pass(usual.monitor)
			h.slotSeen(catalog.Slot{}, 100, "")
			ready("")
		}
		for range 10 {
			pass(usual.monitor)
			h.slotSeen(catalog.Slot{}, 500, "") // and nothing arrives
		}
		ready("nothing has arrived")
		if got := h.Status().(Status).OldestUnconfirmedSeconds; got < usual.stalled.Seconds() {
			t.Errorf("the oldest is unconfirmed for %v s", got)
		}
		must.OK(t, r.tracker.Keepalive(500))
		must.OK(t, r.checkpointer.advance(t.Context()))
		ready("")
		pass(usual.stalled + time.Second)
		ready("could not be looked at")
		h.standby(nil)
		ready("")
		answered := h.look.Ask()
		pass(usual.silenceLimit)
		ready("")
		pass(time.Second)
		ready("PostgreSQL has not answered for")
		answered()
		ready("")
	})
}

// Events arrive, and the checkpoint's topic takes nothing: the broker's own error is
// visible, and passes with the cause.
func TestSaveThatCannotSucceedIsVisible(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string][]kfake.Fault{
		"NOT_ENOUGH_REPLICAS": {{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas}},
		"LEADER_NOT_AVAILABLE": {
			{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition},
			{Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.LeaderNotAvailable},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := sharedDatabase(t)
			cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "outbox.event.order")))(t)
			t.Cleanup(cluster.Close)
			out, s := d.useBrokers(cluster.ListenAddrs())
			i := d.start(s, out).streams()
			eventually(t, "a checkpoint", func() bool { return i.metrics.savesDone() > 0 })
			for n := range faults {
				faults[n].Topic, faults[n].Count = d.checkpointTopic(), -1
			}
			fault := cluster.Fault(faults...)
			d.insert(5, 1)
			eventually(t, "readiness to say why", func() bool {
				ok, reasons := i.health.Ready()
				return !ok && strings.Contains(strings.Join(reasons, "\n"), name)
			})
			st := i.status()
			if !strings.Contains(st.CheckpointError, name) || st.CheckpointAgeSeconds <= 0 || st.CheckpointFailingSeconds <= 0 || i.metrics.age() <= 0 {
				t.Errorf("status %+v, age in metrics %s", st, i.metrics.age())
			}
			eventually(t, "a warning with the broker's error", func() bool {
				warned := i.logs.FilterMessageSnippet("checkpoint cannot be saved").All()
				return len(warned) > 0 && strings.Contains(warned[0].ContextMap()["error"].(string), name)
			})

			fault.Remove()
			eventually(t, "readiness", i.ready)
			eventually(t, "everything to be saved", func() bool { return i.metrics.age() == 0 })
			if st := i.status(); st.CheckpointError != "" || st.CheckpointFailingSeconds != 0 {
				t.Errorf("status %+v after the cause has gone", st)
			}
			i.stop()
		})
	}
}

// A silent store shows as a failing store does.
func TestSaveThatStandsIsVisible(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		release := make(chan struct{})
		blockSaves(k.store, release)
		k.ack(t, 1100)
		pass(interval + unsavedAfter)
		if reason, ok := k.progress.unready(); ok {
			t.Errorf("unready after %s: %s", unsavedAfter, reason)
		}
		pass(time.Second)
		if reason, ok := k.progress.unready(); !ok || !strings.Contains(reason, "6s") {
			t.Errorf("unready %v: %q", ok, reason)
		}
		if age := k.progress.age(); age != interval+unsavedAfter+time.Second {
			t.Errorf("the oldest position is %s old", age)
		}
		close(release)
		pass(saveWaits.Longest)
		if reason, ok := k.progress.unready(); ok || k.progress.age() != 0 {
			t.Errorf("unready %q, age %s after the save", reason, k.progress.age())
		}
	})
}

func TestAgeOfWhatWasAckedDuringASave(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		k.store.hook(func(context.Context, checkpoint.Checkpoint) error {
			k.store.hook(nil)
			k.ack(t, 1200)
			return nil
		})
		k.ack(t, 1100)
		pass(interval)
		if k.saved.Load() != 1100 || k.progress.age() != 0 { // the save took no time
			t.Errorf("saved %d, age %s", k.saved.Load(), k.progress.age())
		}
		pass(interval / 2)
		if age := k.progress.age(); age != interval/2 {
			t.Errorf("age %s, want %s", age, interval/2)
		}
		pass(interval / 2)
		if k.saved.Load() != 1200 || k.progress.age() != 0 {
			t.Errorf("saved %d, age %s", k.saved.Load(), k.progress.age())
		}
	})
}

// Failing saves are a warning at first, and others at growing distances.
func TestFailingSavesAreReportedNowAndThen(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		core, logs := observer.New(zapcore.InfoLevel)
		k.progress.outage = digest.NewOutage(zap.New(core), savedAgain)
		k.store.hook(func(context.Context, checkpoint.Checkpoint) error { return errors.New("no leader") })
		k.ack(t, 1100)
		pass(2*time.Minute + 30*time.Second)
		if n := logs.FilterMessageSnippet("cannot be saved").Len(); n != 3 {
			t.Errorf("%d warnings in two and a half minutes: %v", n, logs.All())
		}
		k.store.hook(nil)
		pass(saveWaits.Longest)
		if n := logs.FilterMessageSnippet("saved again").Len(); n != 1 {
			t.Errorf("the end was told %d times", n)
		}
	})
}

// A save cancelled by its session says nothing about the store.
func TestCancelledSaveIsNoTrouble(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		blockSaves(k.store, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if err := k.begin(ctx, checkpoint.Checkpoint{LSN: 1000, Epoch: 8}); err == nil {
			t.Fatal("begun")
		}
		pass(time.Hour)
		if reason, ok := k.progress.unready(); ok {
			t.Errorf("unready: %s", reason)
		}
	})
}

// savesDone is how many saves succeeded.
func (c *counts) savesDone() (n int) {
	c.locked(func() { n = c.saves - c.failures })
	return n
}
