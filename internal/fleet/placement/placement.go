package placement

import (
	"cmp"
	"maps"
	"slices"
)

// Member is a process of the fleet, by its own words.
type Member struct {
	Name string `json:"name"`
	// Rack is the zone of the process; "" for none.
	Rack string `json:"rack,omitempty"`
	// Drained members take no pipeline if another member can.
	Drained bool `json:"drained,omitempty"`
	// Leaving members are about to end, and take nothing.
	Leaving bool    `json:"leaving,omitempty"`
	Offers  []Offer `json:"offers,omitempty"`
	Holds   []Hold  `json:"holds,omitempty"`
}

// Offer is a pipeline of a member's file.
type Offer struct {
	Pipeline string `json:"p"`
	// Spec is the hash of the pipeline's specification.
	Spec string `json:"s"`
	// Loaded is when the member has read the specification, in Unix seconds.
	Loaded int64 `json:"l"`
	// Rack is the zone of the database; "" for none.
	Rack string `json:"r,omitempty"`
}

// Hold is a pipeline started by a member, and not ended yet.
type Hold struct {
	Pipeline string `json:"p"`
	Spec     string `json:"s"`
	// Rate is the number of events a second.
	Rate float64 `json:"e,omitempty"`
	// Stopping pipelines drain.
	Stopping bool `json:"x,omitempty"`
	// Changing pipelines drain for a new start at the same member, with Spec.
	Changing bool `json:"c,omitempty"`
	// Starting pipelines have begun a moment ago, and do not flow yet.
	Starting bool `json:"n,omitempty"`
}

// Place is a pipeline for a member.
type Place struct {
	Pipeline string  `json:"p"`
	Spec     string  `json:"s"`
	Rate     float64 `json:"e,omitempty"`
}

// Reason is why a pipeline moves.
type Reason string

// The reasons for a move.
const (
	Drain   Reason = "drain"   // its member is drained
	Rollout Reason = "rollout" // another member has a newer specification, or its own member has
	Balance Reason = "balance" // its member has much more to do than another
	Zone    Reason = "zone"    // another member is in the zone of the database
	Gone    Reason = "gone"    // its member has left, or is lost
)

// Move is a pipeline leaving its member. To may take it, once the member has let go.
type Move struct {
	Pipeline string `json:"pipeline"`
	From     string `json:"from,omitempty"`
	To       string `json:"to"`
	Reason   Reason `json:"reason"`
}

// Wait is a pipeline of no member yet. Holder is the member still at work on it; ""
// if no member can run the pipeline.
type Wait struct {
	Pipeline string `json:"pipeline"`
	Holder   string `json:"holder,omitempty"`
}

// Decision is the placement of all pipelines.
type Decision struct {
	// Run has the pipelines of each member, all members included, by pipeline.
	Run map[string][]Place
	// Placed are the pipelines placed by the decision, without From and Reason.
	Placed []Move
	// Moves are those begun by the decision.
	Moves []Move
	// Waits are the pipelines in no list, by pipeline.
	Waits []Wait
}

// idle is the weight of a pipeline without events, in events a second: the price of a
// connection, and a question a second.
const idle = 10

// Weight is the load of a pipeline of the rate on its member.
func Weight(rate float64) float64 { return idle + max(0, rate) }

// tolerance is the part of the mean load by which members may differ. No move is worth less, as
// each makes the pipeline stand still for a moment.
const tolerance = 0.2

// Decide places the pipelines of all members. rates has the last known rate of pipelines without
// a holder, and may be nil. limit is the most pipelines in motion, at least 1.
func Decide(members []Member, rates map[string]float64, limit int) Decision {
	s := look(members, rates)
	s.keep()
	s.place()
	for s.moving < max(1, limit) && s.move() {
	}
	return s.decision()
}

// state is a decision in the making.
type state struct {
	members   []*member   // by name
	pipelines []*pipeline // by name
	mean      float64     // load of a member, if all were equal
	moving    int         // pipelines in motion
	waiting   []*pipeline
	placed    []Move
	moves     []Move
}

type member struct {
	Member
	offers map[string]Offer
	run    map[string]Place
	load   float64
}

type pipeline struct {
	name   string
	newest Offer
	rate   float64
	// owner is the holder at work on the pipeline; nil: none.
	owner *member
	held  Hold // by the owner
	// stuck is a holder about to let go; nil: none.
	stuck *member
}

func (p *pipeline) weight() float64 { return Weight(p.rate) }

// look sorts the members' words.
func look(members []Member, rates map[string]float64) *state {
	s := &state{}
	pipelines := map[string]*pipeline{}
	of := func(name string) *pipeline {
		if pipelines[name] == nil {
			pipelines[name] = &pipeline{name: name, rate: rates[name]}
		}
		return pipelines[name]
	}
	for _, m := range members {
		s.members = append(s.members, &member{Member: m, offers: map[string]Offer{}, run: map[string]Place{}})
	}
	slices.SortFunc(s.members, func(a, b *member) int { return cmp.Compare(a.Name, b.Name) })
	for _, m := range s.members {
		for _, o := range m.Offers {
			m.offers[o.Pipeline] = o
			if p := of(o.Pipeline); Newer(o, p.newest) {
				p.newest = o
			}
		}
	}
	for _, m := range s.members {
		for _, h := range m.Holds {
			of(h.Pipeline).heldBy(m, h)
		}
	}
	s.pipelines = slices.SortedFunc(maps.Values(pipelines), func(a, b *pipeline) int { return cmp.Compare(a.name, b.name) })
	s.weigh()
	return s
}

// weigh finds the mean load, and counts the pipelines in motion.
func (s *state) weigh() {
	total, takers := 0.0, 0
	for _, p := range s.pipelines {
		total += p.weight()
		if p.stuck != nil || p.held.Changing {
			s.moving++
		}
	}
	for _, m := range s.members {
		if m.takes() {
			takers++
		}
	}
	s.mean = total / float64(max(1, takers))
}

// Newer reports whether the specification was loaded after the other. Of two loaded in the same
// second, the larger counts, so all members agree.
func Newer(o, than Offer) bool {
	return cmp.Or(cmp.Compare(o.Loaded, than.Loaded), cmp.Compare(o.Spec, than.Spec)) > 0
}

// heldBy notes a holder. Of several at work, the owner has the newest specification, or the first
// name; the others have to let go.
func (p *pipeline) heldBy(m *member, h Hold) {
	if h.Rate > 0 {
		p.rate = h.Rate
	}
	switch {
	case h.Stopping:
		p.stuck = m
	case p.owner == nil:
		p.owner, p.held = m, h
	case h.Spec == p.newest.Spec && p.held.Spec != p.newest.Spec:
		p.stuck, p.owner, p.held = p.owner, m, h
	default:
		p.stuck = m
	}
}

// takes reports whether the member takes pipelines beside others.
func (m *member) takes() bool { return !m.Drained && !m.Leaving }

// has reports whether the member has the pipeline's newest specification.
func (m *member) has(p *pipeline) bool {
	o, ok := m.offers[p.name]
	return ok && o.Spec == p.newest.Spec
}

func (s *state) give(p *pipeline, to *member, spec string) {
	to.run[p.name] = Place{Pipeline: p.name, Spec: spec, Rate: p.rate}
	to.load += p.weight()
}

// keep leaves each pipeline with its owner, unless the owner leaves, or no file has the pipeline.
func (s *state) keep() {
	for _, p := range s.pipelines {
		switch {
		case p.owner == nil:
			s.waiting = append(s.waiting, p)
		case p.owner.Leaving, p.newest.Spec == "":
			s.release(p)
		default:
			s.give(p, p.owner, p.held.Spec)
		}
	}
}

// release has the owner let go of the pipeline.
func (s *state) release(p *pipeline) {
	if p.stuck == nil {
		s.moving++
	}
	p.stuck, p.owner = p.owner, nil
	s.waiting = append(s.waiting, p)
}

// place gives pipelines without a holder to members, the heaviest first. The others wait, and
// count already where they would go.
func (s *state) place() {
	slices.SortStableFunc(s.waiting, func(a, b *pipeline) int { return cmp.Compare(b.weight(), a.weight()) })
	s.waiting = slices.DeleteFunc(s.waiting, func(p *pipeline) bool {
		to := s.best(p, (*member).takes)
		if to == nil { // better there than nowhere
			to = s.best(p, func(m *member) bool { return !m.Leaving })
		}
		if to == nil {
			return false
		}
		if p.stuck != nil {
			to.load += p.weight()
			return false
		}
		s.give(p, to, p.newest.Spec)
		s.placed = append(s.placed, Move{Pipeline: p.name, To: to.Name})
		return true
	})
}

// best is the member with the least load among those allowed to have the pipeline, beside its
// owner; nil: none.
func (s *state) best(p *pipeline, may func(*member) bool) (best *member) {
	for _, m := range s.members {
		if m != p.owner && m.has(p) && may(m) && (best == nil || s.cost(m, p) < s.cost(best, p)) {
			best = m
		}
	}
	return best
}

// cost is the member's load, with a mark-up outside of the database's zone.
func (s *state) cost(m *member, p *pipeline) float64 {
	if s.away(m, p) {
		return m.load + tolerance*s.mean
	}
	return m.load
}

// away reports whether the member is in another zone than the pipeline's database.
func (s *state) away(m *member, p *pipeline) bool {
	return p.newest.Rack != "" && m.Rack != p.newest.Rack
}

func (s *state) decision() Decision {
	d := Decision{Run: map[string][]Place{}, Placed: s.placed, Moves: s.moves}
	for _, m := range s.members {
		d.Run[m.Name] = slices.SortedFunc(maps.Values(m.run), func(a, b Place) int { return cmp.Compare(a.Pipeline, b.Pipeline) })
	}
	for _, p := range s.waiting {
		w := Wait{Pipeline: p.name}
		if p.stuck != nil {
			w.Holder = p.stuck.Name
		}
		d.Waits = append(d.Waits, w)
	}
	slices.SortFunc(d.Waits, func(a, b Wait) int { return cmp.Compare(a.Pipeline, b.Pipeline) })
	return d
}
