package fleet

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// The simulation's times. Those of the group and of PostgreSQL are the defaults.
const (
	simSession       = 10 * time.Second
	walSenderTimeout = time.Minute
	standby          = time.Second // between two attempts of a spare
	longestStart     = 2 * time.Second
	longestDrain     = 2 * time.Second
	longestSlowDrain = 25 * time.Second
	longestHurry     = 500 * time.Millisecond
	// simRound is enough for members to hear of a rebalance, to join, and to have the answer.
	simRound = 2 * time.Second
	// simGrace is how long a process may act on old news after a pause.
	simGrace = 2 * time.Second
	simStep  = 250 * time.Millisecond
)

// sim is a fleet in virtual time: real memberships over kfake, whose pipelines are fakes that
// hold slots. A slot has a single holder, as PostgreSQL's. Things happen by a seed.
type sim struct {
	t        *testing.T
	random   *rand.Rand // the driver's
	seed     uint64
	moves    int
	network  kfake.VirtualNetwork
	cluster  *kfake.Cluster
	kafkan   *kafkan
	operator *kgo.Client
	bytes    atomic.Int64
	began    time.Time
	agenda   []simDue // the driver's
	working  sync.WaitGroup

	mu        sync.Mutex
	processes []*simulated
	files     []*simFile
	slots     map[string]*simHold
	rates     map[string]float64
	slow      map[string]bool // the next drain is slow
	draws     map[string]*rand.Rand
	changed   time.Time // when a pipeline began or ended last
	moved     map[placement.Reason]int
	refused   int // attempts at a slot of another
	judge
}

// simDue is a thing to do.
type simDue struct {
	at time.Time
	do func()
}

// simFile is a version of the configuration: specifications of pipelines.
type simFile struct{ specs map[string]string }

func newSim(t *testing.T, seed uint64, members, pipelines, moves int) *sim {
	s := &sim{
		t: t, random: rand.New(rand.NewPCG(seed, 47)), seed: seed, moves: moves, began: time.Now(),
		slots: map[string]*simHold{}, rates: map[string]float64{}, slow: map[string]bool{}, draws: map[string]*rand.Rand{},
		moved: map[placement.Reason]int{}, judge: newJudge(),
	}
	s.cluster = must.Get(kfake.NewCluster(kfake.Ports(9092, 9093, 9094), kfake.ListenFn(s.network.Listen)))(t)
	s.operator = s.client("operator", s.newLink())
	s.kafkan = newKafkan(t, s.cluster, s.client("kafkan", s.newLink()))
	file := &simFile{specs: map[string]string{}}
	for i := range pipelines {
		name := fmt.Sprintf("tenant-%04d", i)
		file.specs[name] = s.spec()
		if s.random.IntN(4) == 0 {
			s.rates[name] = float64(s.random.IntN(60))
		}
	}
	s.files = append(s.files, file)
	s.gather(members)
	return s
}

// close ends all.
func (s *sim) close() {
	for _, p := range s.all() {
		p.kill(false)
	}
	s.working.Wait()
	s.operator.Close()
	s.kafkan.group.Client.Close()
	s.cluster.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report(s.t)
}

// gather starts the members. kfake knows no group.initial.rebalance.delay.ms: a further member
// of the group, until all have come, is in the place of that.
func (s *sim) gather(members int) {
	anchor := broker.Group{Client: s.operator, Name: "f", Type: protocolType, Protocol: protocol, Session: simSession}
	says := must.Get(encode(announcement{Wants: &wish{}}))(s.t)
	joined := must.Get(anchor.Join(s.t.Context(), "", says))(s.t)
	s.kafkan.answered(joined.ID) // and does not sync
	for i := range members {
		s.start(fmt.Sprintf("outbox-%d", i), s.files[0])
		s.wait(time.Duration(s.random.IntN(3000/members)) * time.Millisecond)
	}
	s.wait(simRound)
	must.OK(s.t, anchor.Leave(s.t.Context(), joined.Membership))
}

func (s *sim) newLink() *link {
	return newLink(&s.network, &s.bytes, time.Duration(s.random.IntN(5000))*time.Microsecond)
}

func (s *sim) client(id string, l *link) *kgo.Client {
	return must.Get(broker.Connect(kgo.SeedBrokers(s.cluster.ListenAddrs()...), kgo.ClientID(id), kgo.Dialer(l.dial),
		kgo.DisableClientMetrics(), kgo.MetadataMinAge(250*time.Millisecond)))(s.t)
}

// start starts a process. An earlier process of the name, if any, is replaced.
func (s *sim) start(name string, file *simFile) {
	l := s.newLink()
	p := &simulated{sim: s, name: name, link: l, client: s.client(name, l), ended: make(chan struct{}), holds: map[string]*simHold{}}
	o := DefaultOptions()
	o.Group, o.Member, o.SessionTimeout, o.Moves = "f", name, simSession, s.moves
	p.Membership = New(Parts{
		Options: o, Client: p.client, Hands: p, Version: "1.0.0", Log: zap.NewNop(), Metrics: p,
		Offers: func() []placement.Offer {
			s.mu.Lock()
			defer s.mu.Unlock()
			return p.offers
		},
	})
	s.mu.Lock()
	for _, other := range s.processes {
		if other.name == name && !other.dead {
			other.replaced = true
		}
	}
	s.processes = append(s.processes, p)
	s.mu.Unlock()
	s.read(p, file)
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() {
		defer close(p.ended)
		if err := p.Membership.Run(ctx); s.over(p, err) {
			p.link.sever()
			p.client.Close()
		}
	}()
}

// over notes the end of a process, and reports whether the end is the process's own.
func (s *sim) over(p *simulated, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.dead {
		return false
	}
	p.dead, p.died = true, time.Now()
	if err == nil || p.replaced {
		return true
	}
	// A process replaced while it was cut off takes the place of its successor, cut off later.
	back := slices.IndexFunc(s.processes, func(q *simulated) bool { return q.name == p.name && !q.dead })
	if back < 0 {
		s.fault("%s ended by itself: %v", p.name, err)
	} else {
		s.processes[back].replaced = false
	}
	return true
}

// read has the process read a file.
func (s *sim) read(p *simulated, file *simFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	loaded := map[string]int64{}
	for _, o := range p.offers {
		loaded[o.Pipeline+o.Spec] = o.Loaded
	}
	p.file, p.offers = file, nil
	for _, name := range slices.Sorted(maps.Keys(file.specs)) {
		o := placement.Offer{Pipeline: name, Spec: file.specs[name], Loaded: time.Now().Unix()}
		if before, ok := loaded[name+o.Spec]; ok {
			o.Loaded = before
		}
		p.offers = append(p.offers, o)
		s.inactive(name, "beginning", s.bounds.lost)
	}
	p.Poke()
}

// terminate sends SIGTERM.
func (s *sim) terminate(p *simulated) {
	s.mu.Lock()
	p.leaving = true
	s.mu.Unlock()
	p.stop()
}

func (s *sim) all() []*simulated {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.processes)
}

// alive is the process of the name; nil: none.
func (s *sim) alive(name string) *simulated {
	for _, p := range s.all() {
		s.mu.Lock()
		is := p.name == name && !p.dead && !p.replaced
		s.mu.Unlock()
		if is {
			return p
		}
	}
	return nil
}

// in puts a thing on the agenda.
func (s *sim) in(d time.Duration, do func()) {
	s.agenda = append(s.agenda, simDue{time.Now().Add(d), do})
}

// within is a random time.
func (s *sim) within(from, to time.Duration) time.Duration {
	return from + time.Duration(s.random.Int64N(int64(to-from)))
}

// wait lets time pass, does what is due, and judges.
func (s *sim) wait(d time.Duration) {
	for until := time.Now().Add(d); time.Now().Before(until); {
		pause := time.NewTimer(min(simStep, time.Until(until)))
		<-pause.C
		var due []simDue
		s.agenda = slices.DeleteFunc(s.agenda, func(one simDue) bool {
			if time.Now().Before(one.at) {
				return false
			}
			due = append(due, one)
			return true
		})
		for _, one := range due {
			one.do()
		}
		if mend := s.kafkan.look(); mend != nil {
			s.working.Go(func() { mend(s.t.Context()) })
		}
		s.sample()
	}
}

// settle waits until nothing begins or ends any more, and for a while longer.
func (s *sim) settle(patience, still time.Duration) {
	for until := time.Now().Add(patience); ; {
		s.wait(time.Second)
		s.mu.Lock()
		quiet := time.Since(s.changed) > still && len(s.outages) == 0
		s.mu.Unlock()
		if quiet {
			return
		}
		if time.Now().After(until) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.fault("pipelines still begin and end %v after the last event", patience)
			return
		}
	}
}

func (s *sim) spec() string { return fmt.Sprintf("%012x", s.random.Uint64N(1<<48)) }

// draw is a random time for a step of the pipeline. The caller holds mu.
func (s *sim) draw(pipeline string, longest time.Duration) time.Duration {
	if s.draws[pipeline] == nil {
		h := fnv.New64a()
		_, _ = h.Write([]byte(pipeline))
		s.draws[pipeline] = rand.New(rand.NewPCG(s.seed, h.Sum64()))
	}
	return 10*time.Millisecond + time.Duration(s.draws[pipeline].Int64N(int64(longest-10*time.Millisecond)))
}

func (s *sim) drainTime(pipeline string) time.Duration {
	if s.slow[pipeline] {
		delete(s.slow, pipeline)
		return longestSlowDrain/2 + s.draw(pipeline, longestSlowDrain/2)
	}
	return s.draw(pipeline, longestDrain)
}

// free has the walsender of a pipeline end. The caller holds mu.
func (s *sim) free(h *simHold) {
	if s.slots[h.pipeline] == h {
		delete(s.slots, h.pipeline)
	}
}

// freeLater has the walsender of a pipeline end, if not before, after a time.
func (s *sim) freeLater(h *simHold, d time.Duration) {
	lease := h.lease
	time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.lease == lease {
			s.free(h)
		}
	})
}
