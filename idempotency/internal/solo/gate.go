// Package solo lets calls run together, or a single call alone.
//
// It is for calls that may bring the process down: alone, a call takes no other
// with it.
package solo

import (
	"context"
	"sync"
	"time"
)

// Gate is open to all, except while somebody inside is alone. The zero Gate is
// ready for use, and safe for concurrent use.
type Gate struct {
	mu     sync.Mutex
	inside int
	// taken is closed when the gate is open again to all; nil if open.
	taken chan struct{}
	// empty is closed when nobody is inside any more; nil without a waiter.
	empty chan struct{}
}

// Enter waits until nobody is alone inside, or wants to be. The caller must
// call leave. The error is ctx's cause.
func (g *Gate) Enter(ctx context.Context) (leave func(), err error) {
	if err := g.enter(ctx, nil); err != nil {
		return nil, err
	}
	return g.leave, nil
}

// TryEnter is Enter if there is nothing to wait for.
func (g *Gate) TryEnter() (leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.taken != nil {
		return nil, false
	}
	g.inside++
	return g.leave, true
}

// EnterAlone keeps others out, and waits until all inside have left. Neither
// lasts for ever: after patience the caller is not alone, but beside the calls
// still inside, and after patience inside, others are let in. The caller must
// call leave. The error is ctx's cause.
func (g *Gate) EnterAlone(ctx context.Context, patience time.Duration) (leave func(), err error) {
	taken := make(chan struct{})
	if err := g.enter(ctx, taken); err != nil {
		return nil, err
	}
	if err := g.awaitOthers(ctx, patience); err != nil {
		g.open(taken)
		g.leave()
		return nil, err
	}
	reopen := time.AfterFunc(patience, func() { g.open(taken) })
	return func() {
		reopen.Stop()
		g.open(taken)
		g.leave()
	}, nil
}

// enter goes in as soon as the gate is open, and shuts the gate behind if taken
// is not nil.
func (g *Gate) enter(ctx context.Context, taken chan struct{}) error {
	for {
		g.mu.Lock()
		wait := g.taken
		if wait == nil {
			g.inside++
			g.taken = taken
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitOthers waits until only the caller is inside, or for patience.
func (g *Gate) awaitOthers(ctx context.Context, patience time.Duration) error {
	g.mu.Lock()
	if g.inside == 1 {
		g.mu.Unlock()
		return nil
	}
	empty := make(chan struct{})
	g.empty = empty
	g.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-empty:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// open lets others in, unless done before.
func (g *Gate) open(taken chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.taken == taken {
		g.taken, g.empty = nil, nil
		close(taken)
	}
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 1 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}
