package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
)

// judge looks for faults of a simulated fleet.
type judge struct {
	bounds struct {
		move   time.Duration // from the end of a pipeline at its former member, long after events
		lost   time.Duration // from the last event
		silent time.Duration // the same, of a process whose walsenders go on
	}
	outages     map[string]*outage
	longest     map[string]time.Duration // outages, by cause
	generations map[int32]map[string]string
	pairs       map[string]time.Time // when two processes began to believe in a pipeline
	begun       map[string]int       // how often a pipeline has begun since the last event
	doubles     int                  // beliefs in a pipeline beside another's
	incident    time.Time            // the last
	faults      []string
	trace       []string
}

// outage is a time without a member at work on a pipeline.
type outage struct {
	cause        string
	since, until time.Time
}

func newJudge() judge {
	j := judge{
		outages: map[string]*outage{}, longest: map[string]time.Duration{}, generations: map[int32]map[string]string{},
		pairs: map[string]time.Time{}, begun: map[string]int{},
	}
	j.bounds.move = 2*simRound + longestStart + standby
	j.bounds.lost = 2*simSession + j.bounds.move
	j.bounds.silent = max(walSenderTimeout+longestStart+standby, j.bounds.lost)
	return j
}

// happened notes an event. Pipelines without a member have longer: each rebalance may wait for
// a lost member. The caller holds mu.
func (s *sim) happened(format string, values ...any) {
	s.note(format, values...)
	s.incident = time.Now()
	clear(s.begun)
	for _, o := range s.outages {
		o.extend(s.bounds.lost)
	}
}

func (s *sim) note(format string, values ...any) {
	s.trace = append(s.trace, fmt.Sprintf("%9.3f ", time.Since(s.began).Seconds())+fmt.Sprintf(format, values...))
}

func (s *sim) fault(format string, values ...any) {
	s.note("FAULT: "+format, values...)
	s.faults = append(s.faults, s.trace[len(s.trace)-1])
}

func (o *outage) extend(d time.Duration) {
	if until := time.Now().Add(d); until.After(o.until) {
		o.until = until
	}
}

// atWork reports whether a process is at work on the pipeline. The caller holds mu, here and
// below.
func (s *sim) atWork(pipeline string) bool {
	h := s.slots[pipeline]
	return h != nil && h.phase == simStreaming && !h.of.dead && h.of.silences == 0
}

// inactive notes the end of work on a pipeline, to be taken up again within the bound.
func (s *sim) inactive(pipeline, cause string, bound time.Duration) {
	if s.atWork(pipeline) {
		return
	}
	if s.outages[pipeline] == nil {
		s.outages[pipeline] = &outage{cause: cause, since: time.Now()}
	}
	s.outages[pipeline].extend(max(bound, s.bounds.lost-time.Since(s.incident)))
}

// active notes the begin of work on a pipeline.
func (s *sim) active(pipeline string) {
	s.changed = time.Now()
	if o := s.outages[pipeline]; o != nil {
		s.longest[o.cause] = max(s.longest[o.cause], time.Since(o.since))
		delete(s.outages, pipeline)
	}
}

// excused reports whether a process may act on old news.
func (p *simulated) excused() bool {
	return p.paused != nil || !p.resumed.IsZero() && time.Since(p.resumed) < simGrace || p.replaced
}

// judgeBelief looks for another process which has the pipeline, too.
func (s *sim) judgeBelief(h *simHold) {
	s.begun[h.pipeline]++
	for _, q := range s.processes {
		other := q.holds[h.pipeline]
		if q == h.of || other == nil || other.stopping() && !other.orderly {
			continue
		}
		s.doubles++
		if s.pairs[h.pipeline].IsZero() {
			s.pairs[h.pipeline] = time.Now()
		}
		if !q.excused() && !h.of.excused() {
			s.fault("%s was given to %s, and %s has it", h.pipeline, h.of.name, q.name)
		}
	}
}

// judgeDrop looks for a process that stops its pipelines with nothing wrong for longer than a
// session.
func (s *sim) judgeDrop(p *simulated) {
	if !p.well() || time.Since(p.mended) < simSession+simGrace {
		return
	}
	for _, h := range p.holds {
		if !h.stopping() {
			s.fault("%s stops all pipelines, and nothing is wrong with it", p.name)
			return
		}
	}
}

// planned reports whether the end of a pipeline is a move: of two processes with it, one has to
// let go, and a pipeline may be removed.
func (s *sim) planned(h *simHold) bool {
	offered := false
	for _, q := range s.processes {
		if q.dead {
			continue
		}
		if other := q.holds[h.pipeline]; q != h.of && other != nil && !other.stopping() {
			return false
		}
		_, has := q.file.specs[h.pipeline]
		offered = offered || has && q.well()
	}
	return offered
}

// judgeMoves counts the pipelines in motion.
func (s *sim) judgeMoves() {
	var moving []string
	for _, q := range s.processes {
		if q.leaving || q.excused() {
			continue
		}
		for _, h := range q.holds {
			if h.phase == simStopping && h.planned {
				moving = append(moving, h.pipeline)
			}
		}
	}
	if len(moving) > s.moves {
		s.fault("%d pipelines move at a time, and fleet.moves is %d: %s", len(moving), s.moves, s.holders(moving...))
	}
}

// judgeGeneration looks at the assignment of a process, on the goroutine of Membership.Run.
func (s *sim) judgeGeneration(p *simulated) {
	g := p.state.id.Generation
	if s.generations[g] == nil {
		s.generations[g] = map[string]string{}
	}
	for _, place := range p.state.run {
		if other := s.generations[g][place.Pipeline]; other != "" && other != p.name {
			s.fault("generation %d has %s at %s and at %s", g, place.Pipeline, other, p.name)
		}
		s.generations[g][place.Pipeline] = p.name
	}
	delete(s.generations, g-20)
}

// holders tell of all processes with the pipelines.
func (s *sim) holders(pipelines ...string) string {
	var all []string
	for _, name := range pipelines {
		for _, p := range s.processes {
			if h := p.holds[name]; h != nil {
				all = append(all, fmt.Sprintf("%s at %s (phase %d, again %v, spec %s)", name, p.name, h.phase, h.again, h.spec))
			}
		}
	}
	for _, p := range s.processes {
		if !p.dead && !p.well() {
			all = append(all, fmt.Sprintf("%s: leaving %v, replaced %v, cut %v, paused %v, silences %d", p.name, p.leaving, p.replaced, p.cut, p.paused != nil, p.silences))
		}
	}
	return strings.Join(all, "; ")
}

// sample looks for outages and double beliefs beyond their bounds.
func (s *sim) sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.outages)) {
		o := s.outages[name]
		if !time.Now().After(o.until) {
			continue
		}
		switch excuse := s.excuse(name); {
		case excuse == "removed":
			delete(s.outages, name)
		case excuse != "":
			o.extend(s.bounds.move)
		default:
			s.fault("%s is nobody's for %v: %s, %s", name, time.Since(o.since).Round(time.Millisecond), o.cause, s.holders(name))
			delete(s.outages, name)
		}
	}
	for name, since := range s.pairs {
		n, paused := 0, false
		for _, p := range s.processes {
			if h := p.holds[name]; h != nil && !h.stopping() {
				n++
				paused = paused || p.paused != nil
			}
		}
		switch {
		case n < 2:
			delete(s.pairs, name)
		case paused:
			s.pairs[name] = time.Now()
		case time.Since(since) > simSession+simGrace:
			s.fault("%d processes have %s for %v", n, name, time.Since(since))
			delete(s.pairs, name)
		}
	}
}

// excuse is why nobody has to be at work on a pipeline now; "": there is no excuse.
func (s *sim) excuse(name string) string {
	var newest placement.Offer
	known := false
	for _, p := range s.processes {
		if h := p.holds[name]; h != nil && !p.dead {
			known = true
			if h.phase == simStopping {
				return "drains"
			}
			if p.silences > 0 && p.paused == nil {
				return "cut off from PostgreSQL"
			}
		}
		if p.dead && time.Since(p.died) > s.bounds.lost {
			continue
		}
		for _, o := range p.offers {
			if o.Pipeline == name && placement.Newer(o, newest) {
				newest = o
			}
		}
	}
	if newest.Pipeline == "" && !known {
		return "removed"
	}
	for _, p := range s.processes {
		if p.well() && slices.ContainsFunc(p.offers, func(o placement.Offer) bool { return o.Pipeline == name && o.Spec == newest.Spec }) {
			return ""
		}
	}
	return "no process could"
}

// well reports whether nothing is wrong with a process.
func (p *simulated) well() bool {
	return !p.dead && !p.leaving && !p.replaced && !p.cut && p.paused == nil && p.silences == 0
}

// report tells the faults, after the simulation.
func (s *sim) report(t *testing.T) {
	t.Helper()
	if len(s.faults) > 0 {
		for _, line := range s.trace[max(0, len(s.trace)-400):] {
			t.Log(line)
		}
		for _, fault := range s.faults[:min(10, len(s.faults))] {
			t.Error(fault)
		}
	}
	t.Logf("moves %v, outages at most %v, %d beliefs beside another's, %d waits for a slot; for kfake, %d rebalances and %d sessions ended",
		s.moved, s.longest, s.doubles, s.refused, s.kafkan.mended, s.kafkan.ended)
}
