package pipeline

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

var _ fleet.Hands = (*shares)(nil)

// shares has the set run the process's share of a fleet's pipelines.
type shares struct {
	set *Set

	mu     sync.Mutex
	offers []placement.Offer
	known  map[string]config.Pipeline // by name and specification: on offer, or at work
	specs  map[*config.Config]string
	places []placement.Place
	rates  map[string]*rate
}

func newShares(set *Set) *shares {
	return &shares{set: set, known: map[string]config.Pipeline{}, specs: map[*config.Config]string{}, rates: map[string]*rate{}}
}

func keyOf(name, spec string) string { return name + "/" + spec }

// offer names the pipelines of the configuration, as read now.
func (s *shares) offer(pipelines []config.Pipeline, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	loaded := map[string]int64{}
	for _, o := range s.offers {
		loaded[keyOf(o.Pipeline, o.Spec)] = o.Loaded
	}
	s.offers = nil
	for _, p := range pipelines {
		o := placement.Offer{Pipeline: p.Name, Spec: p.Spec(), Loaded: now.Unix(), Rack: p.Config.Source.Rack}
		key := keyOf(o.Pipeline, o.Spec)
		if before, ok := loaded[key]; ok {
			o.Loaded = before
		}
		s.known[key], s.specs[p.Config] = p, o.Spec
		s.offers = append(s.offers, o)
	}
	s.apply()
}

// Offers are the pipelines of the configuration.
func (s *shares) Offers() []placement.Offer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offers
}

// Run implements fleet.Hands.
func (s *shares) Run(places []placement.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = places
	for _, p := range places {
		if s.rates[p.Pipeline] == nil {
			s.rates[p.Pipeline] = &rate{value: p.Rate}
		}
	}
	s.apply()
}

// apply has the set run the pipelines given, and forgets specifications out of use. A member
// of the set keeps its configuration while a newer is the same. The caller holds mu.
func (s *shares) apply() {
	var wanted []config.Pipeline
	used := map[string]bool{}
	for _, p := range s.places {
		key := keyOf(p.Pipeline, p.Spec)
		used[key] = true
		if spec, ok := s.known[key]; ok {
			wanted = append(wanted, spec)
		}
	}
	s.set.Apply(wanted)
	for _, o := range s.offers {
		used[keyOf(o.Pipeline, o.Spec)] = true
	}
	for _, h := range s.set.holding() {
		used[keyOf(h.Name, s.specs[h.Config])] = true
	}
	maps.DeleteFunc(s.known, func(key string, _ config.Pipeline) bool { return !used[key] })
	configs := s.set.uses()
	for _, p := range s.known {
		configs = append(configs, p.Config)
	}
	maps.DeleteFunc(s.specs, func(c *config.Config, _ string) bool { return !slices.Contains(configs, c) })
}

// Drop implements fleet.Hands.
func (s *shares) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = nil
	s.set.Drop()
}

// Holds implements fleet.Hands.
func (s *shares) Holds() (all []placement.Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	rates := map[string]*rate{}
	for _, h := range s.set.holding() {
		r := s.rates[h.Name]
		if r == nil {
			r = &rate{}
		}
		r.count(h.acked, now)
		rates[h.Name] = r
		changing := h.at != nil && (h.halted || s.specs[h.at] != s.specs[h.Config])
		all = append(all, placement.Hold{Pipeline: h.Name, Spec: s.specs[h.Config], Rate: math.Round(r.value), Stopping: h.stopping, Changing: changing, Starting: h.starting})
	}
	s.rates = rates
	return all
}

// rate is a number of events a second, over the last minutes.
type rate struct {
	value float64
	acked int64
	at    time.Time
}

// window is the time for an old rate to count for a third.
const window = time.Minute

// count notes the number of events so far. A smaller number than before is of a pipeline
// started anew.
func (r *rate) count(acked int64, now time.Time) {
	passed := now.Sub(r.at).Seconds()
	if !r.at.IsZero() && passed > 0 && acked >= r.acked {
		share := 1 - math.Exp(-passed/window.Seconds())
		r.value += share * (float64(acked-r.acked)/passed - r.value)
	}
	r.acked, r.at = acked, now
}

// crew is a process in a fleet: its membership, its share of the pipelines, and the
// health of the process.
type crew struct {
	*Set
	hands   *shares
	member  *fleet.Membership
	client  *kgo.Client
	group   string
	command invocation.Invocation

	mu     sync.Mutex
	looked time.Time
	view   *fleet.View
	err    error
}

// newCrew makes a process of a fleet.
func newCrew(o Options, set *Set, counts *metrics.Set) (*crew, error) {
	client, err := wiring.FleetClient(o.Config)
	if err != nil {
		return nil, err
	}
	hands := newShares(set)
	c := &crew{Set: set, hands: hands, client: client, group: o.Config.Fleet.Group, command: o.Invocation}
	c.member = fleet.New(fleet.Parts{
		Options: o.Config.Fleet, Client: client, Hands: hands, Offers: hands.Offers,
		Faults:  func() fleet.Faults { return c.sources.summary() },
		Version: o.Version, Log: o.Log, Metrics: counts.Fleet(),
	})
	set.told = c.member.Poke
	set.lasting = true
	return c, nil
}

// offer names the pipelines for the fleet, as read now.
func (c *crew) offer(pipelines []config.Pipeline) {
	c.hands.offer(pipelines, time.Now())
	c.member.Poke()
}

// Run is a member of the fleet until ctx ends, and runs its share of the pipelines. Run returns
// after their end.
func (c *crew) Run(ctx context.Context) error {
	defer c.client.Close()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var set sync.WaitGroup
	var failed error
	set.Go(func() { failed = c.Set.Run(running) })
	err := c.member.Run(ctx)
	stop()
	set.Wait()
	return failure.Join(err, failed)
}

// Ready reports whether the process is in the fleet, with any of its pipelines ready: a database
// that is down stops its own pipelines, and must hold up neither a rollout nor the others. A
// member without pipelines is ready if its sources have any, as it could take some. The
// reasons are also against single pipelines and sources.
func (c *crew) Ready() (ok bool, reasons []string) {
	ready, wanted, reasons := c.readiness()
	s := c.member.Standing()
	if !s.Joined {
		reasons = append(reasons, "fleet: "+s.Waiting.Error())
	}
	idle := wanted == 0 && len(c.hands.Offers()) > 0
	return s.Joined && (ready > 0 || idle || len(reasons) == 0), reasons
}

// crewStatus is the part of /status about the fleet.
type crewStatus struct {
	fleet.Standing
	Waiting string `json:"waiting_for,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
	// Fleet is the coordinator's knowledge at AsOf, or Error tells the cause of none.
	AsOf  time.Time   `json:"as_of"`
	Fleet *fleet.View `json:"all,omitempty"`
	Error string      `json:"error,omitempty"`
}

// Status adds the fleet to the status of the process's pipelines.
func (c *crew) Status() any {
	status := c.Set.Status().(map[string]any) // a fleet has named pipelines
	status["fleet"] = c.fleetStatus()
	return status
}

const (
	// fresh is how long a view of the fleet is shown again.
	fresh = 2 * time.Second
	// viewPatience bounds the question for another.
	viewPatience = time.Second
)

func (c *crew) fleetStatus() crewStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) > fresh {
		ctx, cancel := context.WithTimeout(context.Background(), viewPatience)
		defer cancel()
		view, err := fleet.Look(ctx, c.client, c.group)
		c.looked, c.err = time.Now(), err
		if err == nil {
			c.view = view
		}
	}
	s := crewStatus{Standing: c.member.Standing(), AsOf: c.looked, Fleet: c.view}
	if !s.Joined {
		s.Waiting, s.Remedy = s.Standing.Waiting.Error(), c.command.In(failure.RemedyOf(s.Standing.Waiting))
	}
	if c.err != nil {
		s.Error = c.err.Error()
	}
	return s
}
