package stream

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// Failure modes 1 and 2.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	d := newDatabase(t, server.NewDatabase(t))
	g := &gate{topic: &topic{}}
	i := d.start(&fakeStore{}, g).streams()
	var ids []string
	for _, mode := range []pgtest.Mode{pgtest.Immediate, pgtest.Fast} {
		ids = append(ids, d.insert(20, 3)...)
		server.Restart(t, mode)
		d.connect()
		ids = append(ids, d.insert(20, 3)...)
		arrive(t, g.topic, len(ids))
	}
	i.stop()
	wantOnce(t, g.topic, ids)
}

// Failure mode 4: a fast shutdown waits for a walsender whose client replies but
// cannot confirm, so the connector must leave.
func TestFastShutdownIsNotHeldUpByAStalledSink(t *testing.T) {
	for _, stage := range []string{"streaming", "saving the first checkpoint of a session"} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t)
			d := newDatabase(t, server.NewDatabase(t))
			s, g := &fakeStore{}, &gate{topic: &topic{}}
			i := d.start(s, g).streams()
			ids := d.insert(1, 1)
			arrive(t, g.topic, 1)
			g.hold()
			ids = append(ids, d.insert(3, 1)...)
			eventually(t, "events in flight", func() bool { _, waiting := g.unacked(); return waiting })
			release := make(chan struct{})
			if stage != "streaming" {
				blockSaves(s, release)
				d.kill()
			}
			began := time.Now()
			server.Stop(t, pgtest.Fast) // it fails if the server waits without end
			t.Logf("the server stopped within %v", time.Since(began).Round(time.Millisecond))
			close(release)
			server.Resume(t)
			d.connect()
			g.open()
			ids = append(ids, d.insert(1, 1)...)
			arrive(t, g.topic, len(ids))
			i.stop()
			wantOnce(t, g.topic, ids)
		})
	}
}
