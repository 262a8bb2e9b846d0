package solo_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/solo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// visitor is a call staying inside until told to leave. inside is atomic because
// a moving fake clock orders nothing for the race detector.
type visitor struct {
	inside atomic.Bool
	out    chan struct{}
}

func visit(t *testing.T, g *solo.Gate, alone bool) *visitor {
	v := &visitor{out: make(chan struct{})}
	go func() {
		enter := g.Enter
		if alone {
			enter = func(ctx context.Context) (func(), error) { return g.EnterAlone(ctx, patience) }
		}
		leave, err := enter(t.Context())
		if err != nil {
			return
		}
		v.inside.Store(true)
		<-v.out
		v.inside.Store(false)
		leave()
	}()
	synctest.Wait()
	return v
}

func (v *visitor) leave() {
	close(v.out)
	synctest.Wait()
}

func expect(t *testing.T, want bool, visitors ...*visitor) {
	t.Helper()
	for i, v := range visitors {
		if v.inside.Load() != want {
			t.Fatalf("visitor %d inside: %t", i, !want)
		}
	}
}

func TestManyAreTogetherAndOneAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g solo.Gate
		a, b := visit(t, &g, false), visit(t, &g, false)
		expect(t, true, a, b)
		one := visit(t, &g, true)
		late, two := visit(t, &g, false), visit(t, &g, true)
		expect(t, false, one, late, two)
		a.leave()
		expect(t, false, one, late, two)
		b.leave()
		expect(t, true, one)
		expect(t, false, late, two)
		one.leave()
		if late.inside.Load() && two.inside.Load() {
			t.Fatal("who is to be alone is not")
		}
		if late.inside.Load() {
			late.leave()
			expect(t, true, two)
			two.leave()
		} else {
			two.leave()
			expect(t, true, late)
			late.leave()
		}
		again := visit(t, &g, false)
		expect(t, true, again)
		again.leave()
	})
}

func TestTryEnter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g solo.Gate
		leave, ok := g.TryEnter()
		if !ok {
			t.Fatal("an open gate is shut")
		}
		one := visit(t, &g, true)
		expect(t, false, one)
		if _, ok := g.TryEnter(); ok {
			t.Error("who wants to be alone is not waited for")
		}
		leave()
		synctest.Wait()
		expect(t, true, one)
		if _, ok := g.TryEnter(); ok {
			t.Error("who is alone is not")
		}
		one.leave()
		if leave, ok := g.TryEnter(); !ok {
			t.Error("the gate stays shut")
		} else {
			leave()
		}
	})
}

func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g solo.Gate
		stuck, one := visit(t, &g, false), visit(t, &g, true)
		late := visit(t, &g, false)
		<-time.After(patience)
		synctest.Wait()
		expect(t, true, stuck, one)
		expect(t, false, late)
		<-time.After(patience)
		synctest.Wait()
		expect(t, true, stuck, one, late)
		next := visit(t, &g, true)
		expect(t, false, next)
		for _, v := range []*visitor{stuck, one, late} {
			v.leave()
		}
		expect(t, true, next)
		next.leave()
	})
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g solo.Gate
		why := errors.New("no longer wanted")
		a := visit(t, &g, false)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-time.After(time.Second)
			cancel(why)
		}()
		if _, err := g.EnterAlone(ctx, patience); !errors.Is(err, why) {
			t.Fatal(err)
		}
		b := visit(t, &g, false)
		expect(t, true, a, b)
		a.leave()
		b.leave()
		one := visit(t, &g, true)
		expect(t, true, one)
		if _, err := g.Enter(ctx); !errors.Is(err, why) {
			t.Fatal(err)
		}
		one.leave()
	})
}
