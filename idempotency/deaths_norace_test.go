//go:build !race

package idempotency_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Processes that die for reasons of their own bury no message. Go's race detector
// itself crashes under so many timers on a clock that jumps (SIGSEGV within its
// runtime, Go 1.26.8); TestOnlyTheKillerIsBuried runs the same code under it.
func TestACrashLoopBuriesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t)
		var ids []string
		for i := range 200 {
			ids = append(ids, fmt.Sprint(i))
		}
		// A process lives until it has begun its nth handler.
		var begun atomic.Int64
		v.untilAllAreDone(ids, func(ctx context.Context, _ string, die func()) {
			if begun.Add(1)%7 == 0 {
				work(ctx, time.Second/2)
				die()
			}
			work(ctx, time.Second)
		})
		if len(v.dead) > 0 {
			t.Errorf("%d of %d are buried", len(v.dead), len(ids))
		}
	})
}
