package stream

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
)

// keep holds an item of each size, each once there is room.
func (q *queue) keep(t *testing.T, sizes ...int64) {
	t.Helper()
	for _, n := range sizes {
		must.OK(t, q.room(t.Context(), n))
		q.hold(sized(n))
	}
}

func sizesOf(batch []item) (sizes []int64) {
	for _, it := range batch {
		sizes = append(sizes, it.Size)
	}
	return sizes
}

// Batches of held and sealed transactions, each a list of sizes.
func TestQueueTakesWholeTransactions(t *testing.T) {
	const full = delivery.BatchBytes
	for name, c := range map[string]struct {
		transactions [][]int64
		batches      [][]int64
	}{
		"several in one batch":                {[][]int64{{1, 2}, {3}, {4, 5}}, [][]int64{{1, 2, 3, 4, 5}}},
		"none is cut to fill a batch":         {[][]int64{{1, 2}, {3, full - 4}, {5}}, [][]int64{{1, 2}, {3, full - 4}, {5}}},
		"one that is larger than a batch":     {[][]int64{{full, full, 1}, {2}}, [][]int64{{full, full, 1}, {2}}},
		"a large one does not join small one": {[][]int64{{1}, {full, full}}, [][]int64{{1}, {full, full}}},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(10 * full)
			for _, sizes := range c.transactions {
				q.keep(t, sizes...)
				q.seal()
			}
			q.close()
			for _, want := range c.batches {
				if got := sizesOf(must.Get(q.fetch(t.Context(), 0, nil))(t)); !slices.Equal(got, want) {
					t.Errorf("took %v, want %v", got, want)
				}
			}
		})
	}
}

// The taker sees nothing of a transaction of any size before the end, not even after
// offer and close.
func TestQueueHoldsUntilTheSeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10 * delivery.BatchBytes)
		var batch []item
		take := func() (err error) { batch, err = q.fetch(t.Context(), 0, nil); return err }
		blocked, result := attempt(take)
		q.keep(t, delivery.BatchBytes, delivery.BatchBytes)
		q.offer()
		if !blocked() {
			t.Fatal("take returned a part of a transaction")
		}
		q.seal()
		if err := result(); err != nil || len(batch) != 2 {
			t.Errorf("took %d items, %v, want 2", len(batch), err)
		}
		q.keep(t, 1)
		q.seal()
		q.keep(t, 2)
		q.close()
		if must.OK(t, take()); !slices.Equal(sizesOf(batch), []int64{1}) {
			t.Errorf("took %v from a closed queue, want 1", sizesOf(batch))
		}
		if must.OK(t, take()); len(batch) > 0 {
			t.Errorf("took %v, of a transaction without an end", sizesOf(batch))
		}
	})
}

// Memory of items seen by the taker will be free. Held memory is never free before the
// end, so more is refused: a transaction of exactly the bound has room, a byte more has
// not.
func TestQueueRefusesWhatNothingCanFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100)
		q.keep(t, 60)
		q.seal() // not even offered
		q.keep(t, 40)
		blocked, result := attempt(func() error { return q.room(t.Context(), 60) })
		if !blocked() {
			t.Error("there is room beyond the bound")
		}
		batch := must.Get(q.fetch(t.Context(), time.Hour, nil))(t)
		if !blocked() || !slices.Equal(sizesOf(batch), []int64{60}) {
			t.Errorf("took %v; there is room before it is free", sizesOf(batch))
		}
		q.free(60)
		must.OK(t, result())
		q.hold(sized(60))
		if err := q.room(t.Context(), 1); !errors.Is(err, errOversized) {
			t.Errorf("room = %v, want errOversized", err)
		}
		q.part()
		q.offer()
		if _, err := q.fetch(t.Context(), 0, nil); err != nil {
			t.Error(err)
		}
		q.free(100)
		must.OK(t, q.room(t.Context(), 1))
	})
}

func TestQueueRefusesBeforeItWaits(t *testing.T) {
	q := newQueue(100)
	must.OK(t, q.put(t.Context(), sized(1)))
	q.keep(t, 99)
	if err := q.room(t.Context(), 2); !errors.Is(err, errOversized) {
		t.Errorf("room = %v, want errOversized: 101 bytes are held, whatever else is in flight", err)
	}
}
