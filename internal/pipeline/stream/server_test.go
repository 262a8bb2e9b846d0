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
	i := d.run().streams()
	for _, mode := range []pgtest.Mode{pgtest.Immediate, pgtest.Fast} {
		d.insert(20, 3)
		server.Restart(t, mode)
		d.connect()
		d.publish(20, 3)
	}
	d.finish(i)
}

// Failure mode 4: a fast shutdown waits for a walsender whose client replies but
// cannot confirm, so the connector must leave.
func TestFastShutdownIsNotHeldUpByAStalledSink(t *testing.T) {
	for _, stage := range []string{"streaming", "saving the first checkpoint of a session"} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t)
			d := newDatabase(t, server.NewDatabase(t))
			i := d.run().streams()
			d.publish(1, 1)
			d.gate.hold()
			d.insert(3, 1)
			d.gate.waits(t)
			release := make(chan struct{})
			if stage != "streaming" {
				blockSaves(d.store, release)
				d.kill()
			}
			began := time.Now()
			server.Stop(t, pgtest.Fast) // it fails if the server waits without end
			t.Logf("the server stopped within %v", time.Since(began).Round(time.Millisecond))
			close(release)
			server.Resume(t)
			d.connect()
			d.gate.open()
			d.publish(1, 1)
			d.finish(i)
		})
	}
}
