package circuit_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/circuit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOneCallProbes(t *testing.T) {
	b := circuit.New[string, string](1, func(n int) time.Duration { return time.Duration(n) * time.Second })
	now := time.Unix(0, 0)
	opens, wait := b.Fails("one", "one", now)
	if !opens || wait != time.Second {
		t.Fatalf("the first failure: opens %v, wait %v", opens, wait)
	}
	if opens, again := b.Fails("two", "two", now); opens || again != 0 {
		t.Error("a call that started before opens it again")
	}
	if b.Passes("two"); b.State() != circuit.Open || b.Allows(now) {
		t.Error("a call may start before the wait is over")
	}
	now = now.Add(wait)
	if !b.Allows(now) {
		t.Error("no call may probe after the wait")
	}
	b.Starts("one")
	if b.State() != circuit.HalfOpen || b.Allows(now) {
		t.Error("two calls may probe at once")
	}
	if b.Passes("two") {
		t.Error("a call that does not probe closes it")
	}
	if opens, wait = b.Fails("one", "one", now); opens || wait != 2*time.Second {
		t.Errorf("the probe's failure: opens %v, wait %v; want a longer wait", opens, wait)
	}
	now = now.Add(wait)
	b.Starts("two")
	b.Cancelled("one")
	if b.Allows(now) {
		t.Error("a call that does not probe makes way")
	}
	b.Cancelled("two")
	if !b.Allows(now) || b.State() != circuit.HalfOpen {
		t.Error("a probe that was cancelled does not make way")
	}
	b.Starts("three")
	if !b.Passes("three") || b.State() != circuit.Closed || !b.Allows(now) {
		t.Error("the probe's success does not close it")
	}
	if _, wait := b.Fails("four", "four", now); wait != time.Second {
		t.Errorf("after it was closed it waits %s", wait)
	}
}

func TestFailuresInARowOpenIt(t *testing.T) {
	b := circuit.New[int, int](3, func(int) time.Duration { return time.Second })
	now := time.Unix(0, 0)
	for n, fails := range []bool{true, true, false, true, true} {
		if fails {
			b.Fails(n, n, now)
		} else {
			b.Passes(n)
		}
		if b.State() != circuit.Closed {
			t.Fatalf("%s after call %d", b.State(), n)
		}
	}
	if opens, _ := b.Fails(5, 5, now); !opens {
		t.Error("three failures in a row do not open it")
	}
}

func TestOneSubjectDoesNotOpenIt(t *testing.T) {
	b := circuit.New[int, string](2, func(int) time.Duration { return time.Second })
	now := time.Unix(0, 0)
	for n := range 100 {
		if opens, _ := b.Fails(n, "one", now); opens || !b.Allows(now) {
			t.Fatalf("open after %d failures about one subject", n+1)
		}
	}
	if opens, _ := b.Fails(100, "two", now); !opens {
		t.Error("failures about two subjects do not open it")
	}
}
