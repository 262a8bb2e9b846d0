package relay

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// Failure modes 1 and 2.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	d := newDatabase(t, server.NewDatabase(t))
	g := &gate{topic: &topic{}}
	i := d.start(&store{}, g).streams()
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
			s, g := &store{}, &gate{topic: &topic{}}
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

// Failure mode 21: a standby that is behind takes over. The standby is the
// server itself as it was before its last events.
func TestFailoverToAStandbyThatIsBehind(t *testing.T) {
	const text = `left timeline 1 at .* before the checkpoint`
	t.Run("while stopped", func(t *testing.T) {
		t.Parallel()
		f := newFailover(t)
		i := f.d.start(f.s, f.g).streams()
		ids := f.d.insert(3, 1)
		arrive(t, f.g.topic, 3)
		i.stop()
		f.promote()
		f.d.start(f.s, f.g).wantEnd(failure.Loss, text)

		// The lost events' positions are used again; without the check these
		// would be skipped.
		f.d.insert(3, 1)
		f.d.start(f.s, f.g).wantEnd(failure.Loss, text)
		wantOnce(t, f.g.topic, ids)
	})
	// What was read and is not acked yet is in no checkpoint.
	t.Run("with events in flight", func(t *testing.T) {
		t.Parallel()
		f := newFailover(t)
		f.d.cfg.Errors.DrainTimeout = time.Millisecond
		f.g.hold()
		i := f.d.start(f.s, f.g).streams()
		f.d.insert(3, 1)
		eventually(t, "events in flight", func() bool { return i.health.Status().(Status).InFlightEvents == 3 })
		f.promote()
		i.wantEnd(failure.Loss, text)
	})
}

// In a failover the URL may lead to the standby before it is promoted, or to one
// of several that is none: it is behind, and has no slot, or one it cannot
// decode. That is no loss until it is the primary.
func TestStandbyIsNotJudged(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	i := f.d.start(f.s, f.g).streams()
	ids := f.d.insert(3, 1)
	arrive(t, f.g.topic, 3)
	i.stop()
	f.standIn()
	i = f.d.start(f.s, f.g)
	eventually(t, "a look at the standby", func() bool {
		ended := i.logs.FilterMessage("PostgreSQL session ended, will reconnect").All()
		return slices.ContainsFunc(ended, func(e observer.LoggedEntry) bool {
			return matches("is a standby", e.ContextMap()["error"].(string))
		})
	})
	f.d.exec("SELECT pg_promote()")
	i.wantEnd(failure.Loss, `left timeline 1 at .* before the checkpoint`)
	wantOnce(t, f.g.topic, ids)
}

// failover is a server that can become what it was before, on a new timeline.
type failover struct {
	t       *testing.T
	server  *pgtest.Server
	d       *database
	s       *store
	g       *gate
	data    string // directory
	standby string // its copy
}

// newFailover starts a server, lets a connector begin, and takes the standby.
func newFailover(t *testing.T) *failover {
	t.Helper()
	server := pgtest.Start(t)
	f := &failover{t: t, server: server, s: &store{}, g: &gate{topic: &topic{}}}
	f.d = newDatabase(t, server.NewDatabase(t))
	f.data, f.standby = f.d.text("SHOW data_directory"), filepath.Join(t.TempDir(), "standby")
	if _, err := os.Stat(f.data); err != nil {
		t.Skip("the server's files are not on this machine")
	}
	f.d.start(f.s, f.g).streams().stop()
	server.Stop(t, pgtest.Fast)
	run(t, "cp", "-a", f.data, f.standby)
	server.Resume(t)
	f.d.connect()
	return f
}

func (f *failover) promote() {
	f.t.Helper()
	f.standIn()
	f.d.exec("SELECT pg_promote()")
}

// standIn has the standby in the server's place.
func (f *failover) standIn() {
	f.t.Helper()
	f.server.Stop(f.t, pgtest.Immediate)
	run(f.t, "rm", "-rf", f.data)
	run(f.t, "cp", "-a", f.standby, f.data)
	run(f.t, "cp", "-a", filepath.Join(f.data, "PG_VERSION"), filepath.Join(f.data, "standby.signal"))
	f.server.Resume(f.t)
	f.d.connect()
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}
