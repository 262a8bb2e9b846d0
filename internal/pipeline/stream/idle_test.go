package stream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// transacting returns a pipeline with Kafka transactions that does not run. It has begun at 1000.
func transacting(t *testing.T, x *Transactions) *Pipeline {
	t.Helper()
	m := &counts{}
	r := newPipeline(Parts{Options: defaultOptions(), Router: &transform.Router{}, Store: &fakeStore{}, Metrics: m,
		Kafka: delivery.NewDownstream(m), Log: zap.NewNop(), Transactions: x}, usual)
	must.OK(t, r.checkpointer.begin(t.Context(), checkpoint.Checkpoint{LSN: 1000, Slot: "s", Epoch: 7}))
	return r
}

// Without commits there is no Kafka transaction. With others' commits there is a
// transaction a second for the slot's sake, however much log they write.
func TestIdleExactlyOnceWritesHardlyATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &transactor{}
		k := keeping{checkpointer: transacting(t, &Transactions{Sink: x, Marker: x}).checkpointer}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.run(ctx) }()

		pass(time.Hour)
		if len(x.commits) != 1 {
			t.Errorf("%d transactions in an hour, want only the first one", len(x.commits))
		}
		const seconds, each = 10, 20 * time.Millisecond
		at := pg.LSN(1000)
		for range seconds * (time.Second / each) {
			at += saveBytes
			k.idleTo(t, at)
			pass(each)
		}
		if n := len(x.commits) - 1; n < seconds-1 || n > seconds+1 {
			t.Errorf("%d transactions in %d seconds in which others write much log, want one a second", n, seconds)
		}
		cancel()
		must.OK(t, <-done)
	})
}

// savesPosition returns a pipeline with a Kafka transaction under way that has nothing but a
// position, and waits for the door of x.
func savesPosition(t *testing.T, x *committing) (r *Pipeline, working context.Context, stopWorking context.CancelCauseFunc, done <-chan error) {
	t.Helper()
	r = transacting(t, &Transactions{Sink: x, Marker: x})
	k := keeping{checkpointer: r.checkpointer}
	working, stopWorking = context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.run(working) }()
	x.hold()
	k.idleTo(t, 1100)
	pass(usual.quiet)
	return r, working, stopWorking, ended
}

// Cut short by a stop, the transaction would be open until the slot's next holder ends it.
func TestStopLetsTheSaveUnderWayEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &committing{}
		r, working, stopWorking, done := savesPosition(t, x)
		go r.rest(t.Context(), stopWorking)
		synctest.Wait()
		if err := context.Cause(working); err != nil {
			t.Errorf("the save under way was cut short: %v", err)
		}
		x.open()
		must.OK(t, <-done)
		if len(x.commits) != 2 || !errors.Is(context.Cause(working), errDrained) {
			t.Errorf("committed %q, and the workers' end is %v", x.commits, context.Cause(working))
		}
	})
}

func TestStopLeavesASilentStoreInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, stopWorking, done := savesPosition(t, &committing{})
		began := time.Now()
		r.rest(t.Context(), stopWorking)
		must.OK(t, <-done)
		if took := time.Since(began); took != usual.close {
			t.Errorf("took %s, want %s", took, usual.close)
		}
	})
}

func TestHurriedStopLeavesASilentStoreSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, stopWorking, done := savesPosition(t, &committing{})
		ctx, hurry := session.WithHaste(t.Context())
		time.AfterFunc(time.Second, hurry)
		began := time.Now()
		r.rest(ctx, stopWorking)
		must.OK(t, <-done)
		if took := time.Since(began); took < time.Second || took > 1500*time.Millisecond {
			t.Errorf("took %s, want a second and a moment", took)
		}
	})
}

// As above, in a run.
func TestRunLetsTheSaveUnderWayEnd(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgtest.Shared(t).NewDatabase(t))
	d.limits.quiet = 50 * time.Millisecond
	x := &committing{}
	i := d.startWith(Parts{Store: d.store, Transactions: &Transactions{Sink: x, Marker: x}}).streams()
	x.hold()
	d.exec("SELECT pg_logical_emit_message(true, 'of nobody', '')")
	x.reached(t)
	i.cancel()
	eventually(t, "the stop", func() bool { return i.role() == session.Stopping })
	x.open()
	must.OK(t, i.wait())
	if x.cut {
		t.Error("the save under way was cut short")
	}
}
