package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

// TestE2EServerRestarts crashes and restarts PostgreSQL under load (failure
// modes 1 and 2). The connector lives on, and knows the events taken in.
func TestE2EServerRestarts(t *testing.T) {
	server := pgtest.Start(t)
	w := newWorld(t, options{server: server})
	c := w.start()
	load := w.write(seed(t), 10*time.Millisecond, 0)
	modes := []pgtest.Mode{pgtest.Immediate, pgtest.Immediate, pgtest.Fast, pgtest.Immediate}
	if testing.Short() {
		modes = modes[1:3]
	}
	for _, mode := range modes {
		load.await(200)
		server.Restart(t, mode)
	}
	load.await(200)
	h, report := w.finish(load, c)
	w.wantDrained(h)
	w.wantNoneAgain(report, "though the connector had them")
}

// TestE2EConnectionsCut cuts the connections to either server, with and without
// losing answers on the way (failure modes 3, 16, 26).
func TestE2EConnectionsCut(t *testing.T) { connectionsCut(t, toTable) }

func connectionsCut(t *testing.T, ways ways) {
	w := newWorld(t, options{ways: ways})
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 100))
	c := w.start()
	load := w.write(s, 5*time.Millisecond, 0)
	cuts := 16
	if testing.Short() {
		cuts = 4
	}
	for range cuts {
		load.await(20 + random.IntN(200))
		p := []*proxy.Proxy{w.postgres, w.kafka}[random.IntN(2)]
		switch random.IntN(3) {
		case 0:
			p.Cut()
		case 1: // the request is carried out, the answer is lost
			p.Set(proxy.Down, proxy.Fault{Cut: true})
			load.await(10)
			p.Set(proxy.Down, proxy.Fault{})
		case 2: // frames end anywhere
			p.Set(proxy.Down, proxy.Fault{Slice: 100})
			p.Set(proxy.Up, proxy.Fault{Slice: 100})
			load.await(50)
			p.Cut()
			p.Set(proxy.Down, proxy.Fault{})
			p.Set(proxy.Up, proxy.Fault{})
		}
	}
	h, report := w.finish(load, c)
	w.wantDrained(h)
	w.wantNoneAgain(report, "though the producer is idempotent")
}

// TestE2ESilentBroker has a broker answering nothing three times longer than
// wal_sender_timeout (failure mode 14). The timeout is not shorter, as a
// machine may stall for a second or two: the server would be right then.
func TestE2ESilentBroker(t *testing.T) {
	t.Parallel()
	timeout := 4 * time.Second
	if testing.Short() {
		timeout = 2 * time.Second
	}
	w := newWorld(t, options{})
	w.setSenderTimeout(timeout)
	c := w.start()
	load := w.write(seed(t), 40*time.Millisecond, 0)
	load.await(50)
	before, _ := w.look()

	w.kafka.Set(proxy.Down, proxy.Fault{Swallow: true})
	var during slotState
	load.during(3*timeout, func() bool {
		during, _ = w.look()
		return during.pid == before.pid // or the check below reports another walsender
	})
	if during.lag < 10_000 {
		t.Errorf("the slot's lag after the silence is %d bytes: the broker was not silent", during.lag)
	}
	w.kafka.Set(proxy.Down, proxy.Fault{})
	w.kafka.Cut() // everything swallowed is lost

	load.stop()
	w.arrived()
	after, _ := w.look()
	if after.pid != before.pid {
		t.Errorf("the walsender is process %d, was %d: the replication connection did not stay up", after.pid, before.pid)
	}
	c.stop()
	_, report := w.verify()
	w.wantNoneAgain(report, "though the producer is idempotent")
}

// TestE2EReconnectBesideSilentBroker cuts the connection to PostgreSQL while
// the broker is silent: neither the old session nor the new may confirm events in
// flight, nor may the new session send them again.
func TestE2EReconnectBesideSilentBroker(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(map[bool]string{false: "then_healed", true: "then_killed"}[killed], func(t *testing.T) {
			w := newWorld(t, options{config: "checkpoint:\n  store: file\n  path: " + filepath.Join(t.TempDir(), "checkpoint") + "\n"})
			c := w.start()
			load := w.write(seed(t), 10*time.Millisecond, 0)
			load.await(50)
			w.kafka.Set(proxy.Down, proxy.Fault{Swallow: true})
			load.await(200)
			before, _ := w.look()
			w.postgres.Cut()
			w.awaitReader(c, before.pid)
			load.during(statusInterval*3/2, func() bool { return true })
			c.running()
			if killed {
				c.kill()
			}
			w.kafka.Set(proxy.Down, proxy.Fault{})
			w.kafka.Cut()
			if killed {
				c = w.start()
			}
			load.await(50)
			h, report := w.finish(load, c)
			w.wantDrained(h)
			if !killed {
				w.wantNoneAgain(report, "though the connector had them")
			}
		})
	}
}

// statusInterval is the default of source.status_interval.
const statusInterval = time.Second

// TestE2ESuspended stops the process beyond the server's patience, and has a
// spare take over; then the old process comes back (failure mode 39).
func TestE2ESuspended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.setSenderTimeout(5 * time.Second)
	old := w.start()
	w.setSenderTimeout(time.Minute) // the spare is not to be taken for suspended
	load := w.write(seed(t), 20*time.Millisecond, 0)
	spare := startConnector(t, w.config)
	spare.awaitLog("standing by")
	load.await(100)
	before, _ := w.look()

	old.signal(syscall.SIGSTOP)
	w.awaitReader(spare, before.pid)
	load.await(100)
	old.signal(syscall.SIGCONT)
	load.await(300)
	load.stop()
	w.arrived()
	spare.stop()
	if code := old.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d of the one that was suspended, want 0: it stands by", code)
	}
	w.verify()
}

// TestE2ESpareTakesOver cuts the connection of the holder of the slot, then kills the
// holder beside a warm spare, several times (failure modes 3, 9 and 42).
func TestE2ESpareTakesOver(t *testing.T) {
	const limit = 3 * time.Second // beyond the machine's delay
	w := newWorld(t, options{})
	holder := w.start()
	load := w.write(seed(t), 10*time.Millisecond, 0)
	rounds := 4
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		load.await(50)
		before, _ := w.look()
		cut := time.Now()
		w.postgres.Cut()
		w.awaitReader(holder, before.pid)
		t.Logf("reconnected in %s", time.Since(cut).Round(time.Millisecond))
	}
	for range rounds {
		spare := startConnector(t, w.config)
		spare.awaitLog("standing by")
		load.await(50)
		before, _ := w.look()
		died := time.Now()
		holder.kill()
		w.awaitReader(spare, before.pid)
		took := time.Since(died)
		late := delay(died, w.watcher.Samples())
		t.Logf("taken over in %s (the machine was late by %s)", took.Round(time.Millisecond), late.Round(time.Millisecond))
		if took-late > limit {
			t.Errorf("the spare took over in %s (the machine was late by %s), want at most %s", took, late, limit)
		}
		holder = spare
	}
	h, _ := w.finish(load, holder)
	w.wantDrained(h)
}

// setSenderTimeout sets wal_sender_timeout for connections from now on.
func (w *world) setSenderTimeout(d time.Duration) {
	w.t.Helper()
	var database string
	must.OK(w.t, w.sql.QueryRow(w.t.Context(), "SELECT current_database()").Scan(&database))
	w.exec(fmt.Sprintf("ALTER DATABASE %s SET wal_sender_timeout = '%dms'", database, d.Milliseconds()))
}
