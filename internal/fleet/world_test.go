package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// session is the tests' session timeout.
const session = 2 * time.Second

// world is a fleet over a broker. Its slots have a single holder each; a second one is noted.
type world struct {
	t      *testing.T
	broker *kafkatest.Broker
	client *kgo.Client
	specs  map[string]string // of the present file, by pipeline
	loaded int64             // when the present file was written

	mu      sync.Mutex
	slots   map[string]*hands
	doubles []string
	slow    map[string]chan struct{} // pipelines that drain until the channel is closed
}

func newWorld(t *testing.T, pipelines int, opts ...kafkatest.Option) *world {
	opts = append(opts, kafkatest.Setting("group.min.session.timeout.ms", "1000"), kafkatest.Setting("group.initial.rebalance.delay.ms", "0"))
	w := &world{t: t, broker: kafkatest.Start(t, opts...), specs: map[string]string{}, slots: map[string]*hands{}, slow: map[string]chan struct{}{}}
	w.client = w.broker.Client(t)
	for i := range pipelines {
		w.specs[fmt.Sprintf("p%d", i)] = "first"
	}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, double := range w.doubles {
			t.Error(double)
		}
	})
	return w
}

// hands hold slots in place of pipelines.
type hands struct {
	world *world
	name  string
	poke  func()

	mu    sync.Mutex
	holds map[string]placement.Hold
	wg    sync.WaitGroup
}

func (h *hands) Run(places []placement.Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := map[string]placement.Place{}
	for _, p := range places {
		wanted[p.Pipeline] = p
		if _, held := h.holds[p.Pipeline]; !held {
			h.holds[p.Pipeline] = placement.Hold{Pipeline: p.Pipeline, Spec: p.Spec, Rate: p.Rate}
			h.world.take(h, p.Pipeline)
		}
	}
	for name, hold := range h.holds {
		p, ok := wanted[name]
		switch {
		case !ok && !hold.Stopping:
			hold.Stopping = true
			h.holds[name] = hold
			h.wg.Go(func() { h.drain(name) })
		case ok && !hold.Stopping:
			hold.Spec = p.Spec
			h.holds[name] = hold
		}
	}
}

func (h *hands) drain(name string) {
	h.world.mu.Lock()
	slow := h.world.slow[name]
	h.world.mu.Unlock()
	if slow != nil {
		<-slow
	}
	h.end(name)
	h.poke()
}

func (h *hands) end(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.holds, name)
	h.world.give(h, name)
}

func (h *hands) Drop() {
	h.mu.Lock()
	names := slices.Collect(maps.Keys(h.holds))
	h.mu.Unlock()
	for _, name := range names {
		h.end(name)
	}
	h.poke()
}

func (h *hands) Holds() []placement.Hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.holds), func(a, b placement.Hold) int { return cmp.Compare(a.Pipeline, b.Pipeline) })
}

// take notes a holder of a slot, and a second one.
func (w *world) take(h *hands, pipeline string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if other := w.slots[pipeline]; other != nil && other != h {
		w.doubles = append(w.doubles, fmt.Sprintf("%s was given to %s while %s had it", pipeline, h.name, other.name))
	}
	w.slots[pipeline] = h
}

func (w *world) give(h *hands, pipeline string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.slots[pipeline] == h {
		delete(w.slots, pipeline)
	}
}

// process is a member at work.
type process struct {
	*Membership
	hands  *hands
	client *kgo.Client
	read   func() // the present file
	stop   func()
	ended  chan struct{}
	err    error
}

// start starts a process with the present file, with its own way to the broker.
func (w *world) start(name string, brokers ...string) *process {
	w.t.Helper()
	if len(brokers) == 0 {
		brokers = w.broker.Brokers
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ClientID(name))
	if err != nil {
		w.t.Fatal(err)
	}
	o := DefaultOptions()
	o.Group, o.Member, o.SessionTimeout = "f", name, session
	var offers atomic.Pointer[[]placement.Offer]
	read := func() {
		var all []placement.Offer
		for _, pipeline := range slices.Sorted(maps.Keys(w.specs)) {
			all = append(all, placement.Offer{Pipeline: pipeline, Spec: w.specs[pipeline], Loaded: w.loaded})
		}
		offers.Store(&all)
	}
	read()
	p := &process{read: read, hands: &hands{world: w, name: name, holds: map[string]placement.Hold{}}, client: client, ended: make(chan struct{})}
	p.Membership = New(Parts{
		Options: o, Client: client, Hands: p.hands, Offers: func() []placement.Offer { return *offers.Load() }, Version: "test",
		Log: zaptest.NewLogger(w.t, zaptest.Level(zap.InfoLevel)).Named(name), Metrics: noMetrics{},
	})
	p.hands.poke = p.Poke
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() {
		defer close(p.ended)
		p.err = p.Run(ctx)
	}()
	w.t.Cleanup(func() {
		stop()
		<-p.ended
		p.hands.wg.Wait()
		client.Close()
	})
	return p
}

// kill ends the process without a farewell: its slots are free, its session goes on.
func (p *process) kill() {
	p.client.Close()
	p.hands.Drop()
	p.stop()
	<-p.ended
}

func (p *process) pipelines() (names []string) {
	for _, h := range p.hands.Holds() {
		names = append(names, h.Pipeline)
	}
	return names
}

// eventually waits for the numbers of pipelines of the processes.
func (w *world) eventually(what string, processes []*process, numbers ...int) {
	w.t.Helper()
	await.Until(w.t, what, func() bool {
		for i, p := range processes {
			if len(p.hands.Holds()) != numbers[i] {
				return false
			}
		}
		return true
	})
}

func (w *world) look() *View {
	w.t.Helper()
	v, err := Look(w.t.Context(), w.client, "f")
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}
