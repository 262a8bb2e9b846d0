package backoff_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

var waits = backoff.Range{First: 100 * time.Millisecond, Longest: time.Second}

func TestWaitDoublesUpToTheLongest(t *testing.T) {
	for n, whole := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 4: 800 * time.Millisecond,
		5: time.Second, 64: time.Second, math.MaxInt: time.Second,
	} {
		for range 100 {
			if got := waits.Wait(n); got < whole/2 || got > whole {
				t.Fatalf("Wait(%d) = %v, want between %v and %v", n, got, whole/2, whole)
			}
		}
	}
}

func TestWaitsSpread(t *testing.T) {
	first, differs := waits.Wait(1), false
	for range 100 {
		differs = differs || waits.Wait(1) != first
	}
	if !differs {
		t.Error("a hundred waits are the same")
	}
}

func TestSeriesBeginsAnewAfterReset(t *testing.T) {
	s := backoff.Series{Range: waits}
	for range 10 {
		s.Next()
	}
	if got := s.Next(); got < waits.Longest/2 {
		t.Errorf("the 11th wait is %v, want at least %v", got, waits.Longest/2)
	}
	s.Reset()
	if got := s.Next(); got > waits.First {
		t.Errorf("the first wait after Reset is %v, want at most %v", got, waits.First)
	}
}

func TestPauseSleepsTheNextWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := backoff.Series{Range: waits}, time.Now()
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < waits.First/2 || took > waits.First {
			t.Errorf("paused for %v", took)
		}
	})
}

func TestSleepEndsWithItsContext(t *testing.T) {
	cause := errors.New("asked to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := backoff.Sleep(ctx, time.Hour); !errors.Is(err, cause) {
		t.Errorf("Sleep = %v, want the context's cause", err)
	}
}
