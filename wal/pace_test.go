package wal

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A small read is followed by a nap, and by a rest only if whole transactions trickle in,
// in quick succession.
func TestPause(t *testing.T) {
	const gather = 4 * time.Millisecond
	type state struct {
		read    int
		wait    time.Duration
		open    bool
		partial bool
		gather  time.Duration
		full    bool
		flood   int // bytes arrived within 2 ms, since the last nap
	}
	for name, c := range map[string]struct {
		state
		want pause
	}{
		"nothing was read":                             {state{gather: gather}, none},
		"a trickle":                                    {state{read: 3000, wait: gather, gather: gather}, resting},
		"a trickle nobody wants gathered":              {state{read: 3000, wait: gather}, napping},
		"the first after a while":                      {state{read: 700, wait: time.Second, gather: gather}, none},
		"the beginning of it":                          {state{read: 70, wait: time.Second, open: true, gather: gather}, napping},
		"within a transaction":                         {state{read: 700, wait: gather, open: true, gather: gather}, napping},
		"within a message":                             {state{read: 700, wait: gather, partial: true, gather: gather}, napping},
		"a flood in small reads":                       {state{read: 12_000, wait: shortNap, gather: gather}, napping},
		"a small read late in a flood":                 {state{read: 700, wait: gather / 4, gather: gather, flood: restBytes}, napping},
		"a trickle after some rows":                    {state{read: 700, wait: gather / 4, gather: gather, flood: restBytes / 4}, resting},
		"as much as the socket should hold":            {state{read: restBytes, wait: gather, gather: gather}, none},
		"a large read":                                 {state{read: smallRead, wait: shortNap, gather: gather}, none},
		"a small read that was all there was room for": {state{read: 700, wait: shortNap, full: true}, none},
		"a trickle that was all there was room for":    {state{read: 3000, wait: gather, gather: gather, full: true}, none},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Stream{decoder: newDecoder(), lastRead: c.read, roomy: !c.full, lastWait: c.wait, gather: c.gather,
				readAt: time.Now(), sinceNap: c.flood}
			if c.flood > 0 {
				s.napped = s.readAt.Add(-2 * time.Millisecond)
			}
			s.decoder.open = c.open
			if c.partial {
				s.frames.w = 1
			}
			if got := (*pacedReader)(s).pause(); got != c.want {
				t.Errorf("pause %d; want %d", got, c.want)
			}
		})
	}
}

// A nap is long in a flood over loopback only, and not so long that the
// server's socket fills.
func TestNapTime(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int
		since time.Duration // the last nap
		far   bool
		want  time.Duration
	}{
		"a flood":                    {30_000, time.Millisecond, false, longNap},
		"a flood over a network":     {30_000, time.Millisecond, true, shortNap},
		"after a short nap":          {6_000, shortNap, false, longNap},
		"large rows":                 {napBytes, longNap / 2, false, longNap / 2},
		"faster than any server":     {100 * napBytes, time.Millisecond, false, shortNap},
		"a message after a while":    {70, time.Second, false, shortNap},
		"some rows now and then":     {7_000, 4 * time.Millisecond, false, shortNap},
		"as much as a flood has":     {napBytes, flood, false, longNap},
		"a little less than that":    {napBytes, flood + time.Millisecond, false, shortNap},
		"the first read of a stream": {70, time.Since(time.Time{}), false, shortNap},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			s := &Stream{loopback: !c.far, sinceNap: c.bytes, napped: now.Add(-c.since), readAt: now}
			if got := (*pacedReader)(s).napTime(); got != c.want {
				t.Errorf("%s; want %s", got, c.want)
			}
		})
	}
}

// A rest is no shorter than asked for, and is followed by a look at the stream's context.
func TestRest(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	s := &Stream{conn: client, socket: client, decoder: newDecoder(), liveness: time.Minute, gather: maxRest}
	defer s.release()
	ctx, cancel := context.WithCancel(t.Context())
	s.interruptible(ctx)
	defer s.uninterrupt()
	p := (*pacedReader)(s)
	for range 2 {
		began := time.Now()
		must.OK(t, p.rest())
		if took := time.Since(began); took < maxRest {
			t.Errorf("a rest of %s; want %s", took, maxRest)
		}
	}
	cancel()
	s.lastRead, s.lastWait, s.roomy = 1, maxRest, true
	if _, err := p.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v; want the context's end", err)
	}
}
