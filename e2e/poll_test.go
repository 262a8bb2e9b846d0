package e2e

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

const (
	// polledSequence has a sequence to order by, polledClock the time of the
	// insert.
	polledSequence = `CREATE TABLE outbox (seq bigint GENERATED ALWAYS AS IDENTITY, id uuid PRIMARY KEY, aggregatetype text, aggregateid text,
		type text, payload text, note text, created_at timestamptz NOT NULL DEFAULT now(), published boolean NOT NULL DEFAULT false, published_at timestamptz);
		CREATE INDEX ON outbox (seq) WHERE NOT published`
	polledClock = `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text, note text,
		created_at timestamptz NOT NULL DEFAULT clock_timestamp(), published boolean NOT NULL DEFAULT false, published_at timestamptz);
		CREATE INDEX ON outbox (created_at) WHERE NOT published`

	// claimTimeout is source.poll.claim_timeout, short for tests of expiry.
	claimTimeout = time.Second
	// patientClaim is the other tests' claim timeout: a short one would cause
	// repetitions on a busy machine.
	patientClaim = 20 * time.Second
	// batchSize is source.poll.batch_size: small, for a frequent backlog.
	batchSize = 20
	// instances are how many poll at once.
	instances = 3
)

// TestE2EPollMode disturbs three instances in poll mode as other tests disturb a
// stream.
func TestE2EPollMode(t *testing.T) {
	t.Parallel()
	for name, ddl := range map[string]string{"sequence": polledSequence, "clock": polledClock} {
		for what, run := range map[string]func(*testing.T, string){"every_event_once": polledOnce, "killed": polledKilled} {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				run(t, ddl)
			})
		}
	}
	for name, run := range map[string]func(*testing.T, string){
		"deleted":         polledDeleted,
		"suspended":       polledSuspended,
		"server_restarts": polledRestarts,
		"silent_broker":   polledSilentBroker,
		"connections_cut": polledCut,
		"dead_letters":    polledDeadLetters,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, polledSequence)
		})
	}
}

// neverGivesUp has claims last longer than a busy broker takes.
func (w *world) neverGivesUp() {
	w.t.Helper()
	w.rewriteConfig("claim_timeout: "+claimTimeout.String(), "claim_timeout: "+patientClaim.String())
}

// fleet starts the instances.
func (w *world) fleet() []*connector {
	w.t.Helper()
	all := make([]*connector, instances)
	for n := range all {
		all[n] = w.start()
	}
	return all
}

// wantMarked wants no row to be left.
func (w *world) wantMarked() {
	w.t.Helper()
	left := -1
	await.Until(w.t, "end of the backlog", func() bool {
		if w.sql.IsClosed() {
			w.sql = connect(w.t, w.url)
		}
		err := w.sql.QueryRow(context.Background(), "SELECT count(*) FROM outbox WHERE NOT published").Scan(&left)
		return err == nil && left == 0
	})
}

func polledOnce(t *testing.T, ddl string) { newWorld(t, options{polled: ddl}).once(2500) }

func polledDeleted(t *testing.T, ddl string) {
	w := newWorld(t, options{polled: ddl})
	w.rewriteConfig("after_publish: mark", "after_publish: delete")
	w.once(1000)
}

// once has the instances poll events without trouble.
func (w *world) once(events int) {
	w.t.Helper()
	w.neverGivesUp()
	fleet := w.fleet()
	load := w.write(seed(w.t), 8*time.Millisecond, 0)
	load.await(events)
	_, report := w.finish(load, fleet...)
	w.wantNoneAgain(report, "without a reason")
}

// polledKilled kills instances at random moments. A kill repeats no more than
// the instance had in hand.
func polledKilled(t *testing.T, ddl string) {
	kills := 12
	if testing.Short() {
		kills = 4
	}
	w := newWorld(t, options{polled: ddl})
	w.neverGivesUp()
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 100))
	fleet := w.fleet()
	load := w.write(s, time.Millisecond, 0)
	kills = number(t, killsEnv, kills)
	for range kills {
		load.await(20 + random.IntN(500))
		victim := random.IntN(instances)
		fleet[victim].running()
		fleet[victim].kill()
		fleet[victim] = startConnector(t, w.config)
	}
	_, report := w.finish(load, fleet...)
	const inHand = 2 * batchSize // each worker's
	if report.Repeated > kills*inHand {
		t.Errorf("%d records came again after %d kills", report.Repeated, kills)
	}
	t.Logf("%d kills repeated %d records", kills, report.Repeated)
}

// polledSuspended stops an instance beyond the server's patience.
func polledSuspended(t *testing.T, ddl string) {
	w := newWorld(t, options{polled: ddl})
	fleet := w.fleet()
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 100))
	load := w.write(s, 10*time.Millisecond, 0)
	for range 3 {
		load.await(100 + random.IntN(100))
		victim := fleet[random.IntN(instances)]
		victim.signal(syscall.SIGSTOP)
		load.during(2*claimTimeout+2*time.Second, func() bool { return true })
		victim.signal(syscall.SIGCONT)
	}
	w.finish(load, fleet...)
}

func polledRestarts(t *testing.T, ddl string) {
	server := pgtest.Start(t, pgtest.Setting("wal_level", "replica"))
	w := newWorld(t, options{server: server, polled: ddl})
	fleet := w.fleet()
	load := w.write(seed(t), 10*time.Millisecond, 0)
	modes := []pgtest.Mode{pgtest.Immediate, pgtest.Fast, pgtest.Immediate}
	if testing.Short() {
		modes = modes[1:]
	}
	for _, mode := range modes {
		load.await(200)
		server.Restart(t, mode)
	}
	load.await(200)
	w.finish(load, fleet...)
}

// polledSilentBroker has a broker answer nothing for several claim timeouts, and
// then stops the broker.
func polledSilentBroker(t *testing.T, ddl string) {
	w := newWorld(t, options{polled: ddl})
	fleet := w.fleet()
	load := w.write(seed(t), 20*time.Millisecond, 0)
	load.await(50)
	w.kafka.Set(proxy.Down, proxy.Fault{Swallow: true})
	// Twice the server's limit for idle transactions, and more: a transaction kept
	// open shows, a transaction ended late by a busy machine does not.
	const ended = 2*claimTimeout + 2*time.Second
	load.during(5*ended/2, func() bool { return true })
	if held := w.oldestTransaction(); held > 2*ended {
		t.Errorf("a transaction was open for %s", held)
	}
	w.kafka.Set(proxy.Down, proxy.Fault{})
	w.kafka.Cut() // everything swallowed is lost
	load.await(100)
	w.broker.Stop(t)
	load.during(2*claimTimeout, func() bool { return true })
	w.broker.Resume(t)
	load.await(100)
	w.finish(load, fleet...)
}

// oldestTransaction is the age of the oldest transaction of a connector.
func (w *world) oldestTransaction() (age time.Duration) {
	w.t.Helper()
	var seconds float64
	must.OK(w.t, w.sql.QueryRow(context.Background(), `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8
		FROM pg_stat_activity WHERE application_name = 'cdc-outbox' AND datname = current_database()`).Scan(&seconds))
	return time.Duration(seconds * float64(time.Second))
}

func polledCut(t *testing.T, ddl string) {
	w := newWorld(t, options{polled: ddl})
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 100))
	fleet := w.fleet()
	load := w.write(s, 5*time.Millisecond, 0)
	cuts := 12
	if testing.Short() {
		cuts = 4
	}
	for range cuts {
		load.await(20 + random.IntN(200))
		p := []*proxy.Proxy{w.postgres, w.kafka}[random.IntN(2)]
		if random.IntN(2) == 0 { // the request is carried out, the answer is lost
			p.Set(proxy.Down, proxy.Fault{Cut: true})
			load.await(10)
			p.Set(proxy.Down, proxy.Fault{})
			continue
		}
		p.Cut()
	}
	w.finish(load, fleet...)
}

func polledDeadLetters(t *testing.T, ddl string) {
	w := newWorld(t, options{polled: ddl}.refusing(50_000))
	w.neverGivesUp()
	fleet := w.fleet()
	load := w.write(seed(t), 8*time.Millisecond, 50_000)
	load.await(1000)
	_, report := w.finish(load, fleet...)
	w.wantNoneAgain(report, "without a reason")
	if letters := w.ends()[deadLetter][0]; letters == 0 {
		t.Error("no payload was over the limit")
	}
}

// sourceConfig is the rest of the section source, and the section event.
func (w *world) sourceConfig() string {
	if !w.polled {
		return w.ways.config()
	}
	return fmt.Sprintf("  mode: poll\n  poll:\n    claim_timeout: %s\n    batch_size: %d\n    after_publish: mark\n", claimTimeout, batchSize) + w.ways.config()
}

// started is in the program's log once at work.
func (w *world) started() string {
	if w.polled {
		return `"polling"`
	}
	return `"streaming"`
}

// entity is an event's subject.
type entity struct{ aggregate, key string }

// entity is random, in polled mode one of the locked.
func (w *writer) entity() entity {
	if w.polled {
		return w.keys[w.random.IntN(len(w.keys))]
	}
	return w.anyEntity()
}

func (w *writer) anyEntity() entity {
	aggregate := aggregates[w.random.IntN(len(aggregates))]
	return entity{aggregate, aggregate + entityKeys[w.random.IntN(len(entityKeys))]}
}

// takeTurn locks the transaction's subjects, in a fixed order, as services do
// by changing the aggregate's row.
func (w *writer) takeTurn(ctx context.Context) error {
	if !w.polled {
		return nil
	}
	w.keys = nil
	for range 1 + w.random.IntN(3) {
		w.keys = append(w.keys, w.anyEntity())
	}
	slices.SortFunc(w.keys, func(a, b entity) int { return cmp.Compare(a.key, b.key) })
	for _, e := range w.keys {
		if _, err := w.conn.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", e.key); err != nil {
			return err
		}
	}
	return nil
}
