package redis

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/ahead"
	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
)

const (
	// maxGathered is how many calls share a round trip at most.
	maxGathered = 64
	// maxShared is the size of the largest result in a shared round trip. The other
	// calls would wait for a larger result.
	maxShared = 4 << 10
)

// gatherer makes a single round trip of the claims and completions made at the
// same moment. No call waits for another's round trip, or for a timer: a call
// waits only until the ready goroutines have run, and then goes by itself if none
// of them made a call. The callers sharing a round trip are ready again at the
// same moment, and so make their next calls together.
type gatherer struct {
	// yield lets other goroutines run; runtime.Gosched, except in tests.
	yield func()

	// slots is whether the server wants a command's keys to be of a single hash
	// slot, like the nodes of a cluster.
	slots atomic.Bool

	mu     sync.Mutex
	open   map[*goredis.Client]*batch // free to be joined, by server
	closed bool                       // no batch begins any more

	trips sync.WaitGroup // the batches begun and not over
}

// batch is the calls sharing a round trip.
type batch struct {
	calls []*gathered
	slots *atomic.Bool  // the gatherer's
	sent  chan struct{} // closed when all are answered, or have failed
}

// gathered is a call of a script. After joining a batch, only cmd, place and err
// change, when the batch is sent.
type gathered struct {
	ctx    context.Context
	script *goredis.Script
	name   string
	args   []any
	alone  func() (any, error) // makes the call by itself
	cmd    *goredis.Cmd        // with others' replies, too
	place  int                 // of the call's reply
	err    error
}

// reply is the answer of a call after its batch has been sent.
func (c *gathered) reply() (any, error) {
	if c.err != nil {
		return nil, c.err
	}
	return replyFor(c.place, c.cmd)
}

// answer is reply. A refused call is repeated by itself: the server may not know
// the script (any more), or the key has moved. A call without company is made by
// itself.
func (c *gathered) answer() (any, error) {
	if c.cmd == nil && c.err == nil {
		return c.alone()
	}
	reply, err := c.reply()
	if refused := goredis.Error(nil); errors.As(err, &refused) {
		return c.alone()
	}
	return reply, err
}

func newGatherer(cluster bool) *gatherer {
	g := &gatherer{yield: runtime.Gosched, open: map[*goredis.Client]*batch{}}
	g.slots.Store(cluster)
	return g
}

// run runs the script as Script.Run does, at the same time as others if there are
// any. The context, the answer and the error are the call's own.
func (g *gatherer) run(c *gathered, server *goredis.Client) (any, error) {
	err := g.send(server, c)
	switch {
	case errors.Is(err, ahead.ErrApart):
		return c.alone()
	case err != nil:
		return nil, err
	}
	return c.answer()
}

// send returns when the calls, with the same context, have their answers, or when
// the context has ended. A call without company is left to be made by itself; so
// are all, with ahead.ErrApart, after close.
func (g *gatherer) send(server *goredis.Client, calls ...*gathered) error {
	b, leads := g.join(server, calls)
	if b == nil {
		return ahead.ErrApart
	}
	if leads {
		g.yield()
		g.shut(b, server)
		if len(b.calls) == 1 {
			g.trips.Done()
			return nil
		}
		go func() { // ends with the last call's context, or by the client's timeouts
			defer g.trips.Done()
			b.send(server)
		}()
	}
	select {
	case <-b.sent:
		return nil
	case <-calls[0].ctx.Done():
		return calls[0].ctx.Err()
	}
}

// join adds the calls to the server's open batch, if any. Otherwise they lead a
// new batch: nil after close.
func (g *gatherer) join(server *goredis.Client, calls []*gathered) (b *batch, leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b = g.open[server]
	if b == nil {
		if g.closed {
			return nil, false
		}
		g.trips.Add(1)
		b, leads = &batch{sent: make(chan struct{}), slots: &g.slots}, true
		g.open[server] = b
	}
	if b.calls = append(b.calls, calls...); len(b.calls) >= maxGathered {
		delete(g.open, server)
	}
	return b, leads
}

// close lets no batch begin any more, and waits until all are over.
func (g *gatherer) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.trips.Wait()
}

// joined counts the calls waiting for others to join.
func (g *gatherer) joined() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, b := range g.open {
		n += len(b.calls)
	}
	return n
}

// shut lets nobody join the batch any more.
func (g *gatherer) shut(b *batch, server *goredis.Client) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[server] == b {
		delete(g.open, server)
	}
}

// send makes the round trip. No call's context ends the batch: others are
// inside.
func (b *batch) send(server *goredis.Client) {
	ctx, cancel := b.context()
	defer close(b.sent)
	defer cancel()
	err := usercode.Call(func() error {
		pipe := server.Pipeline()
		commands := b.commands()
		for _, calls := range commands {
			queue(ctx, pipe, calls)
		}
		_, err := pipe.Exec(ctx)
		for _, calls := range commands { // each has a separate error, unless a hook did not send them
			cmd := calls[0].cmd
			if cmd.Err() == nil && cmd.Val() == nil {
				cmd.SetErr(err)
			}
			if goredis.HasErrorPrefix(cmd.Err(), "CROSSSLOT") { // a node, or a proxy before a cluster
				b.slots.Store(true)
			}
		}
		return nil
	})
	if err != nil { // a hook of the client panicked
		for _, c := range b.calls {
			c.err = err
		}
	}
}

// commands returns the calls in hand by script: a single command runs it on all
// their keys. If the server wants a command's keys to be of a single hash slot,
// each call is a command. Completions go before claims: a completion may be of
// the claimed key, or of the message before.
func (b *batch) commands() (commands [][]*gathered) {
	for _, c := range b.calls {
		if c.err = c.ctx.Err(); c.err != nil {
			continue
		}
		same := slices.IndexFunc(commands, func(calls []*gathered) bool { return !b.slots.Load() && calls[0].script == c.script })
		switch {
		case same >= 0:
			commands[same] = append(commands[same], c)
		case c.script == completeScript:
			commands = slices.Insert(commands, 0, []*gathered{c})
		default:
			commands = append(commands, []*gathered{c})
		}
	}
	return commands
}

// queue makes a single command of the calls.
func queue(ctx context.Context, pipe goredis.Pipeliner, calls []*gathered) {
	names, args := make([]string, 0, len(calls)), make([]any, 0, len(calls)*len(calls[0].args))
	for place, c := range calls {
		c.place = place
		names, args = append(names, c.name), append(args, c.args...)
	}
	cmd := calls[0].script.EvalSha(ctx, pipe, names, args...)
	for _, c := range calls {
		c.cmd = cmd
	}
}

// context is the first call's, but ends with the last of them.
func (b *batch) context() (context.Context, context.CancelFunc) {
	ctx := context.WithoutCancel(b.calls[0].ctx)
	var last time.Time
	for _, c := range b.calls {
		deadline, ok := c.ctx.Deadline()
		if !ok {
			return ctx, func() {}
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(ctx, last)
}
