package stream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// fleetEnv is for how long TestE2EFleet goes on, as a duration; fleetSeedEnv is the first
// seed.
const (
	fleetEnv     = "CDC_OUTBOX_TEST_FLEET"
	fleetSeedEnv = "CDC_OUTBOX_TEST_FLEET_SEED"
)

// Instances over a single slot, topic and store come and go, are killed, cut
// off, stalled and paused at random. No event is lost, the order of each key is kept, the
// checkpoint is never behind the slot, and no instance takes another's work for a loss.
// With an even seed the server crashes, too, and forgets how far the slot was confirmed.
func TestE2EFleet(t *testing.T) {
	t.Parallel()
	lasts, seed := time.Second, uint64(1)
	if text := os.Getenv(fleetEnv); text != "" {
		lasts = must.Get(time.ParseDuration(text))(t)
	}
	if text := os.Getenv(fleetSeedEnv); text != "" {
		seed = must.Get(strconv.ParseUint(text, 10, 64))(t)
	}
	for until := time.Now().Add(lasts); time.Now().Before(until) && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { newFleet(t, seed).sail() })
	}
}

const (
	fleetSeats = 3
	fleetSteps = 250
	fleetPace  = 20 * time.Millisecond
)

// fleet is a single database, store and topic, with the instances at work.
type fleet struct {
	t      *testing.T
	server *pgtest.Server // nil: the shared server
	random *rand.Rand
	d      *database
	seats  [fleetSeats]*seat
	ready  bool     // everything inserted must arrive
	steps  []string // all steps done, to understand a failure
}

// seat is for instance after instance, with a connection, a sink and a store of its own.
type seat struct {
	d     *database
	proxy *proxy.Proxy
	*instance
	gate  *mortal
	store *pausing
}

func newFleet(t *testing.T, seed uint64) *fleet {
	t.Helper()
	f := &fleet{t: t, random: rand.New(rand.NewPCG(seed, 0))}
	if seed%2 == 0 {
		f.server = pgtest.Start(t)
		f.d = newDatabase(t, f.server.NewDatabase(t))
	} else {
		f.d = sharedDatabase(t)
	}
	f.d.opts.DrainTimeout = 500 * time.Millisecond
	f.d.opts.MaxBufferedBytes = 20_000
	if f.random.IntN(2) == 0 {
		f.d.opts.Snapshot = true
		f.ready = true
		f.insert(60)
	}
	for i := range f.seats {
		f.seats[i] = &seat{}
		f.seats[i].proxy, f.seats[i].d = behindProxy(t, f.d)
	}
	return f
}

// sail does the steps, lets an instance finish, and checks the outcome.
func (f *fleet) sail() {
	f.t.Cleanup(func() {
		if f.t.Failed() {
			f.t.Logf("steps: %v", f.steps)
		}
	})
	pace := time.NewTicker(fleetPace)
	defer pace.Stop()
	for range fleetSteps {
		f.step()
		f.look()
		<-pace.C
	}
	for _, s := range f.seats {
		f.end(s, true)
	}
	last := f.d.run().streams()
	f.insert(3)
	eventually(f.t, "the last event", func() bool { return slices.Contains(f.d.topic.ids(), f.d.ids[len(f.d.ids)-1]) })
	last.stop()
	f.judge()
}

// step does a random step.
func (f *fleet) step() {
	n := f.random.IntN(fleetSeats)
	s := f.seats[n]
	action, do := "wait", func() {}
	switch roll := f.random.IntN(100); {
	case roll < 25:
		if f.ready {
			action, do = "insert", func() { f.insert(1 + f.random.IntN(20)) }
		}
	case s.instance == nil:
		action, do = "start", func() { f.start(s) }
	case roll < 28:
		action, do = "stop", func() { f.end(s, true) }
	case roll < 31:
		action, do = "kill", func() { f.end(s, false) }
	case roll < 34:
		action, do = "cut", s.proxy.Cut
	case roll < 36:
		action, do = "terminate", func() {
			f.d.exec("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND slot_name = '" + f.d.opts.Slot + "'")
		}
	case roll < 43:
		action, do = "hold", s.gate.hold
	case roll < 55:
		action, do = "open", s.gate.open
	case roll < 62:
		action, do = "pause", s.store.hold
	case roll < 75:
		action, do = "resume", s.store.open
	case f.server == nil:
	case roll < 77:
		action, do = "crash", func() { f.server.Restart(f.t, pgtest.Immediate); f.d.connect() }
	case roll < 79:
		action, do = "flush", func() { f.d.exec("CHECKPOINT") }
	}
	f.steps = append(f.steps, fmt.Sprintf("%s %d", action, n))
	do()
	for _, s := range f.seats {
		f.collect(s)
	}
}

func (f *fleet) insert(n int) { f.d.insert(n, 1+f.random.IntN(n)) }

func (f *fleet) start(s *seat) {
	s.gate = &mortal{gate: gate{topic: f.d.topic}}
	s.store = &pausing{Store: f.d.store}
	s.instance = s.d.start(s.store, s.gate)
	f.t.Cleanup(s.store.open) // before the instance's own
}

// collect notes that an instance ended by itself: only after a takeover by another.
func (f *fleet) collect(s *seat) {
	if s.instance == nil || !s.ended() {
		return
	}
	if s.err != nil && failure.ClassOf(s.err) != failure.Transient {
		f.t.Fatalf("Run = %v", s.err)
	}
	s.instance = nil
}

// end stops the instance, or kills it: without effect from now on.
func (f *fleet) end(s *seat, well bool) {
	if s.instance == nil {
		return
	}
	if !well {
		s.gate.kill()
		s.store.dead.Store(true)
		s.proxy.Refuse(true)
		s.proxy.Cut()
	}
	s.cancel()
	s.gate.open()
	s.store.open()
	eventually(f.t, "the end of Run", func() bool { f.collect(s); return s.instance == nil })
	s.proxy.Refuse(false)
}

// look checks that the slot is not beyond the checkpoint.
func (f *fleet) look() {
	if f.d.text("SELECT count(confirmed_flush_lsn)::text FROM pg_replication_slots WHERE slot_name = '"+f.d.opts.Slot+"'") == "0" {
		return
	}
	f.ready = true
	confirmed, stored := f.d.confirmed(), f.d.store.stored()
	if stored.LSN != 0 && !stored.Creating && confirmed > stored.LSN {
		f.t.Fatalf("the slot is confirmed up to %s, the checkpoint is at %s", confirmed, stored.LSN)
	}
}

func (f *fleet) judge() {
	keys := map[string][]int{}
	for _, r := range firsts(f.d.topic.all()) {
		id := must.Get(strconv.Atoi(r.id))(f.t)
		keys[r.key] = append(keys[r.key], id)
	}
	for key, ids := range keys {
		if !slices.IsSorted(ids) {
			f.t.Errorf("key %s arrived in the order %v", key, ids)
		}
	}
	f.d.wantAll()
	f.t.Logf("%d events, %d records, %d checkpoints", len(f.d.ids), len(f.d.topic.all()), len(f.d.store.saved))
}

// firsts are the records without repetitions.
func firsts(records []record) (out []record) {
	seen := map[string]bool{}
	for _, r := range records {
		if !seen[r.id] {
			seen[r.id] = true
			out = append(out, r)
		}
	}
	return out
}

// errDead is the error of every call of a killed instance.
var errDead = errors.New("killed")

// mortal is a gate that writes nothing any more once killed.
type mortal struct {
	gate
	life sync.RWMutex
	dead bool
}

func (m *mortal) kill() {
	m.life.Lock()
	defer m.life.Unlock()
	m.dead = true
}

func (m *mortal) Deliver(ctx context.Context, events []*transform.Event, reject sink.Reject) error {
	m.life.RLock()
	dead := m.dead
	m.life.RUnlock()
	if dead {
		return errDead
	}
	return m.gate.Deliver(ctx, events, reject)
}

// pausing is an instance's way to the store. During a pause, loads answer with the old
// content, and saves arrive afterwards: also given up saves.
type pausing struct {
	checkpoint.Store
	door
	dead atomic.Bool
}

func (p *pausing) Load(ctx context.Context) (checkpoint.Checkpoint, bool, error) {
	cp, ok, err := p.Store.Load(ctx)
	if err := p.pass(ctx); err != nil {
		return cp, false, err
	}
	return cp, ok, err
}

func (p *pausing) Save(ctx context.Context, cp checkpoint.Checkpoint) error {
	done := make(chan error, 1)
	held := p.held()
	go func() { // ends with open at the latest
		if held != nil {
			<-held
		}
		if p.dead.Load() {
			done <- errDead
			return
		}
		done <- p.Store.Save(context.WithoutCancel(ctx), cp)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
