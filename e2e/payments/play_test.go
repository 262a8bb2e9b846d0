package payments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
)

// options are a play's.
type options struct {
	store     storeKind
	orders    int    // how many are paid, each three times
	kills     int    // how many processes are killed at least, in turn
	connector string // the program
	logs      string // a directory
}

// play runs and judges the whole flow, unless ctx ends before.
func play(ctx context.Context, o options, out io.Writer) (err error) {
	s, err := setUp(ctx, o.store, out)
	if err != nil {
		return err
	}
	defer s.close()
	c, err := newCast(s, o)
	if err != nil {
		return err
	}
	if err := c.setUpConnector(ctx); err != nil {
		return err
	}
	defer func() {
		for _, a := range c.all() {
			err = errors.Join(err, a.stop())
		}
	}()
	for _, a := range c.all() {
		if err := a.start(); err != nil {
			return err
		}
	}
	s.say("orders, shipping and cdc-outbox, processes of their own; their logs are in %s\n", o.logs)

	world, err := newWorld(ctx, s, o.orders)
	if err != nil {
		return err
	}
	defer world.close()
	err = scenes(ctx, s, c, world, o)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, world.judge(ctx, s, c))
}

// scenes lets customers pay while processes are killed, and returns when
// everything sent is handled. Its goroutines have ended then.
func scenes(ctx context.Context, s *stage, c cast, w *world, o options) error {
	acting, stop := context.WithCancel(ctx)
	defer stop()
	var all errgroup.Group
	run := func(part func(context.Context) error) {
		all.Go(func() error {
			err := part(acting)
			if err != nil {
				stop() // the others have nothing to wait for
			}
			return err
		})
	}
	killed := make(chan struct{})
	run(w.repeat)
	run(func(ctx context.Context) error {
		defer close(killed)
		return killInTurn(ctx, s, c, o.kills)
	})
	run(func(ctx context.Context) error {
		defer stop()
		if err := w.pay(ctx, killed); err != nil {
			return err
		}
		select {
		case <-killed: // the processes are ours to look at from here
		case <-ctx.Done():
			return nil
		}
		return w.settled(ctx, s, c)
	})
	return all.Wait()
}

// killInTurn kills the processes in turn, at random moments, and starts each
// again; Redis comes back empty.
func killInTurn(ctx context.Context, s *stage, c cast, kills int) error {
	victims := []victim{
		{c.orders.name, c.orders.kill}, {c.connector.name, c.connector.kill}, {c.shipping.name, c.shipping.kill},
	}
	if s.redis != nil {
		victims = append(victims, victim{"Redis", s.killRedis})
	}
	for i := range kills {
		pause := time.NewTimer(time.Duration(500+rand.IntN(1500)) * time.Millisecond)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
		v := victims[i%len(victims)]
		if err := v.kill(ctx); err != nil {
			return fmt.Errorf("kill %s: %w", v.name, err)
		}
		s.say("killed %s (%d of %d)", v.name, i+1, kills)
	}
	return nil
}

// victim is a process that can be killed, and started again.
type victim struct {
	name string
	kill func(context.Context) error
}
