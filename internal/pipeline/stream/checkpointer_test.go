package stream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

const interval = 100 * time.Millisecond

// keeping is a running checkpointer, begun at 1000.
type keeping struct {
	*checkpointer
	store   *fakeStore
	metrics *counts
	stop    func() error // ends run and returns its error
	held    *atomic.Bool // whether the present stream is known
}

// keep runs a test of a checkpointer in a synctest bubble.
func keep(t *testing.T, test func(t *testing.T, k keeping)) {
	synctest.Test(t, func(t *testing.T) {
		s, m := &fakeStore{}, &counts{}
		k := newCheckpointer(s, checkpoint.NewLocked(0), interval, m, zap.NewNop())
		must.OK(t, k.begin(t.Context(), checkpoint.Checkpoint{LSN: 1000, Slot: "s", Epoch: 7}))
		held := &atomic.Bool{}
		k.holds = held.Load
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.run(ctx) }()
		stop := sync.OnceValue(func() error { cancel(); return <-done })
		defer func() { _ = stop() }()
		test(t, keeping{k, s, m, stop, held})
	})
}

// ack acks a transaction ending at end.
func (k keeping) ack(t *testing.T, end pg.LSN) {
	t.Helper()
	ticket := k.tracker.Add()
	must.OK(t, k.tracker.Seal(end, checkpoint.Landmark{}))
	k.tracker.Done(ticket, 1)
	k.event()
}

// idleTo moves the position past nothing of ours.
func (k keeping) idleTo(t *testing.T, pos pg.LSN) {
	t.Helper()
	must.OK(t, k.tracker.Keepalive(pos))
	k.moved()
}

// pass lets the bubble's clock go on by d.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (k keeping) want(t *testing.T, positions ...pg.LSN) {
	t.Helper()
	if got := k.store.positions(); !slices.Equal(got, positions) {
		t.Errorf("saved %v, want %v", got, positions)
	}
}

func TestCheckpointerSavesAnAckWithinTheInterval(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		pass(interval / 2)
		k.ack(t, 1100)
		pass(interval/2 - 1)
		k.want(t, 1000)
		pass(1)
		k.want(t, 1000, 1100)
		must.OK(t, k.stop())
	})
}

func TestCheckpointerSavesManyAcksAsOne(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		for end := pg.LSN(1001); end <= 1050; end++ {
			k.ack(t, end)
		}
		pass(time.Second)
		k.want(t, 1000, 1050)
	})
}

func TestCheckpointerSavesMuchLogEarly(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		k.idleTo(t, 1000+saveBytes)
		pass(interval/5 - 1)
		k.want(t, 1000)
		pass(1)
		k.want(t, 1000, 1000+saveBytes)
	})
}

func TestCheckpointerSavesAQuietPositionOnceInAWhile(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		pass(time.Millisecond)
		for n := range 99 {
			k.idleTo(t, pg.LSN(1001+n))
			pass(usual.quiet / 100)
		}
		k.want(t, 1000)
		pass(usual.quiet)
		k.want(t, 1000, 1099)
		pass(10 * usual.quiet) // nothing moves
		k.want(t, 1000, 1099)
	})
}

func TestCheckpointerConfirmsOnlyWhatIsSaved(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		release := make(chan struct{})
		k.store.hook(func(context.Context, checkpoint.Checkpoint) error { <-release; return nil })
		k.ack(t, 1100)
		pass(time.Minute)
		if got := k.saved.Load(); got != 1000 {
			t.Errorf("confirms %d while the save is under way", got)
		}
		close(release)
		pass(0)
		if got := k.saved.Load(); got != 1100 {
			t.Errorf("confirms %d after the save, want 1100", got)
		}
	})
}

func TestCheckpointerRemembersAnAckDuringASave(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		acked := false
		k.store.hook(func(context.Context, checkpoint.Checkpoint) error {
			if !acked {
				acked = true
				k.ack(t, 1200)
			}
			return nil
		})
		k.ack(t, 1100)
		pass(2 * interval)
		k.want(t, 1000, 1100, 1200)
	})
}

func TestCheckpointerRetriesAFailingStoreWithPauses(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		k.store.hook(func(context.Context, checkpoint.Checkpoint) error { return errors.New("store is away") })
		for end := pg.LSN(1001); end <= 1600; end++ { // each ack wakes the checkpointer
			k.ack(t, end)
			pass(100 * time.Millisecond)
		}
		if k.metrics.failures < 10 || k.metrics.failures > 40 {
			t.Errorf("%d attempts in a minute", k.metrics.failures)
		}
		if got := k.saved.Load(); got != 1000 {
			t.Errorf("confirms %d, which is not saved", got)
		}
		k.store.hook(nil)
		pass(saveWaits.Longest)
		k.want(t, 1000, 1600)
	})
}

func TestCheckpointerEndsWithWhatRetryingCannotFix(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		k.store.hook(func(context.Context, checkpoint.Checkpoint) error {
			return failure.Lossf("find it", "the topic was deleted")
		})
		k.ack(t, 1100)
		pass(interval)
		err := k.stop()
		if failure.ClassOf(err) != failure.Loss {
			t.Errorf("run = %v, want class Loss", err)
		}
		before := k.metrics.saves
		k.finish(t.Context(), err)
		if k.metrics.saves != before {
			t.Error("finish asks a store that has failed for good")
		}
	})
}

// An outage of the broker blocks a save for as long.
func TestCheckpointerAnswersWhileASaveBlocks(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		k.store.hook(func(ctx context.Context, _ checkpoint.Checkpoint) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		k.ack(t, 1100)
		pass(time.Minute)
		if got := k.last(); got.LSN != 1000 {
			t.Errorf("last is at %v", got.LSN)
		}
		cause := errors.New("asked to stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if err := k.begin(ctx, checkpoint.Checkpoint{LSN: 1000, Epoch: 8}); !errors.Is(err, cause) {
			t.Errorf("begin = %v, want its context's cause", err)
		}
		if err := k.stop(); err != nil {
			t.Errorf("run = %v, want nil for a stop", err)
		}
	})
}

func TestCheckpointerBeginKeepsWhatWasAckedBefore(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		ticket := k.tracker.Add()
		_ = k.tracker.Seal(1500, checkpoint.Landmark{})
		k.tracker.Done(ticket, 1) // acked, not saved: the connection broke
		must.OK(t, k.begin(t.Context(), checkpoint.Checkpoint{LSN: 1000, Epoch: 8}))
		if got := k.last(); got.LSN != 1500 || got.Epoch != 8 {
			t.Errorf("begins at %v in epoch %d, want 1500 in 8", got.LSN, got.Epoch)
		}
	})
}

func TestCheckpointerFinishSavesTheLastPosition(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		k.ack(t, 1100)
		must.OK(t, k.stop())
		k.finish(t.Context(), nil)
		k.finish(t.Context(), nil) // nothing left to do
		k.want(t, 1000, 1100)
	})
}

// A failed first save may have reached the store.
func TestCheckpointerStaysInTheEpochThatMayBeStored(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		k.store.hook(func(context.Context, checkpoint.Checkpoint) error { return errors.New("the answer was lost") })
		if err := k.begin(t.Context(), checkpoint.Checkpoint{LSN: 1000, Slot: "s", Epoch: 8}); err == nil {
			t.Fatal("begun")
		}
		k.store.hook(nil)
		k.ack(t, 1100)
		pass(interval)
		if got := k.store.stored(); got.LSN != 1100 || got.Epoch != 8 || got.Slot != "s" {
			t.Errorf("saved %s in epoch %d, want 1100 in epoch 8", got.LSN, got.Epoch)
		}
	})
}

// A changed publication is saved once, although the position stays.
func TestCheckpointerSavesAChangedPublication(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		k.follow("7:t=1/2|schema/3", horizon{})
		pass(interval - 1)
		k.want(t, 1000)
		pass(1)
		k.want(t, 1000, 1000)
		k.follow("7:t=1/2|schema/3", horizon{})
		pass(time.Minute)
		k.want(t, 1000, 1000)
		if got := k.store.stored(); got.Publication != "7:t=1/2|schema/3" || got.Slot != "s" {
			t.Errorf("saved %+v", got)
		}
		k.follow("7:t=schema/3", horizon{})
		must.OK(t, k.stop())
		k.finish(t.Context(), nil)
		if got := k.store.stored().Publication; got != "7:t=schema/3" {
			t.Errorf("the last checkpoint says %q", got)
		}
	})
}

// A session begins with the publication of its own look, not of an earlier session's.
func TestCheckpointerBeginsWithTheSessionsPublication(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		k.follow("old", horizon{})
		pass(interval)
		k.follow("new", horizon{})
		must.OK(t, k.begin(t.Context(), checkpoint.Checkpoint{LSN: 1000, Epoch: 8, Publication: "new"}))
		if got := k.store.stored(); got.Publication != "new" || got.Epoch != 8 {
			t.Errorf("saved %+v", got)
		}
	})
}

// Failure mode 104. Compaction leaves the last record of a key: not a former holder's.
func TestCheckpointerSavesTheLastCheckpointAgain(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		pass(saveAgain)
		k.want(t, 1000)
		k.held.Store(true)
		pass(k.quiet)
		k.want(t, 1000, 1000)
		pass(saveAgain - 1)
		k.want(t, 1000, 1000)
		pass(k.quiet)
		k.want(t, 1000, 1000, 1000)
	})
}
