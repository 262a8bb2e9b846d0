package fleet

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
)

// simulated is a process of a simulation: the real membership, with hands for pipelines without
// content.
type simulated struct {
	*Membership
	sim    *sim
	name   string
	link   *link
	client *kgo.Client
	stop   func()
	ended  chan struct{}

	// The others are guarded by sim.mu.
	file     *simFile
	offers   []placement.Offer
	holds    map[string]*simHold
	dead     bool // no goroutine of the process does anything any more
	leaving  bool
	replaced bool          // by a second process of the name
	cut      bool          // from the brokers
	mended   time.Time     // when the last pause or cut ended
	paused   chan struct{} // nil: at work; closed at the end of the pause
	resumed  time.Time
	late     []func()  // due at the end of the pause
	silences int       // reasons for silence towards PostgreSQL
	silence  time.Time // when the last began
	died     time.Time
}

// simHold is a pipeline of a process.
type simHold struct {
	of       *simulated
	pipeline string
	spec     string
	phase    simPhase
	again    bool // is started anew after its stop
	orderly  bool // the group knows of the stop
	planned  bool // the stop is a move
	step     int  // counts the phases: earlier timers are void
	lease    int  // counts how often it had the slot
	tried    bool // to have the slot, since the start
}

type simPhase int

const (
	simStarting simPhase = iota // or a spare
	simStreaming
	simStopping
)

func (h *simHold) stopping() bool { return h.phase == simStopping && !h.again }

// after does the next step of a pipeline. The caller holds sim.mu, and do is called with sim.mu.
func (p *simulated) after(d time.Duration, h *simHold, do func(*simHold)) {
	h.step++
	step := h.step
	due := func() {
		if !p.dead && h.step == step {
			do(h)
		}
	}
	time.AfterFunc(d, func() {
		p.sim.mu.Lock()
		defer p.sim.mu.Unlock()
		if p.paused != nil {
			p.late = append(p.late, due)
			return
		}
		due()
	})
}

func (p *simulated) begin(h *simHold) {
	h.phase, h.again, h.orderly, h.planned, h.tried = simStarting, false, false, false, false
	p.after(p.sim.draw(h.pipeline, longestStart), h, p.attempt)
}

// attempt takes the slot, or stands by.
func (p *simulated) attempt(h *simHold) {
	s := p.sim
	h.tried = true
	if s.slots[h.pipeline] != nil || p.silences > 0 {
		s.refused++
		p.after(standby, h, p.attempt)
		return
	}
	s.slots[h.pipeline] = h
	h.phase, h.lease = simStreaming, h.lease+1
	s.active(h.pipeline)
}

// halt stops a pipeline.
func (p *simulated) halt(h *simHold, cause string, bound, d time.Duration) {
	h.phase = simStopping
	p.sim.inactive(h.pipeline, cause, bound)
	p.after(d, h, p.end)
}

func (p *simulated) end(h *simHold) {
	p.sim.inactive(h.pipeline, "", p.sim.bounds.move)
	if p.silences == 0 {
		p.sim.free(h)
	} else {
		p.sim.freeLater(h, walSenderTimeout-time.Since(p.silence))
	}
	if h.again {
		p.begin(h)
	} else {
		delete(p.holds, h.pipeline)
	}
	p.sim.changed = time.Now()
	p.Poke()
}

// standStill blocks the goroutine of Membership.Run during a pause.
func (p *simulated) standStill() {
	for {
		p.sim.mu.Lock()
		paused := p.paused
		p.sim.mu.Unlock()
		if paused == nil {
			return
		}
		<-paused
	}
}

// Run implements Hands.
func (p *simulated) Run(places []placement.Place) {
	p.standStill()
	s := p.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.dead {
		return
	}
	s.judgeGeneration(p)
	wanted := map[string]bool{}
	for _, place := range places {
		wanted[place.Pipeline] = true
		h := p.holds[place.Pipeline]
		switch {
		case h == nil:
			h = &simHold{of: p, pipeline: place.Pipeline, spec: place.Spec}
			p.holds[place.Pipeline] = h
			p.begin(h)
			s.judgeBelief(h)
		case h.stopping():
			h.again, h.spec = true, place.Spec
			s.judgeBelief(h)
		case h.spec != place.Spec && h.phase != simStopping:
			h.again, h.planned, h.spec = true, true, place.Spec
			p.halt(h, "rollout", s.bounds.move, s.drainTime(h.pipeline))
		default:
			h.spec = place.Spec
			continue
		}
		s.changed = time.Now()
	}
	for _, name := range slices.Sorted(maps.Keys(p.holds)) {
		h := p.holds[name]
		if wanted[name] || h.stopping() {
			continue
		}
		h.again, s.changed = false, time.Now()
		if h.phase != simStopping {
			h.orderly, h.planned = true, !p.state.leaving && s.planned(h)
			cause := "leave"
			if h.planned {
				cause = "move"
			}
			p.halt(h, cause, s.bounds.move, s.drainTime(name))
		}
	}
	s.judgeMoves()
}

// Drop implements Hands.
func (p *simulated) Drop() {
	p.standStill()
	s := p.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judgeDrop(p)
	for _, name := range slices.Sorted(maps.Keys(p.holds)) {
		h := p.holds[name]
		h.again, h.orderly, h.planned, s.changed = false, false, false, time.Now()
		p.halt(h, "drop", s.bounds.lost, s.draw(name, longestHurry))
	}
	p.Poke()
}

// Holds implements Hands.
func (p *simulated) Holds() (all []placement.Hold) {
	p.standStill()
	s := p.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range p.holds {
		all = append(all, placement.Hold{Pipeline: h.pipeline, Spec: h.spec, Rate: s.rates[h.pipeline], Stopping: h.stopping(), Changing: h.again, Starting: h.phase == simStarting && !h.tried})
	}
	slices.SortFunc(all, func(a, b placement.Hold) int { return cmp.Compare(a.Pipeline, b.Pipeline) })
	return all
}

// FleetJoined implements Metrics.
func (p *simulated) FleetJoined(bool) {}

// FleetAssigned implements Metrics.
func (p *simulated) FleetAssigned(int, int) {}

// FleetMoved implements Metrics.
func (p *simulated) FleetMoved(reason string) {
	p.sim.mu.Lock()
	defer p.sim.mu.Unlock()
	p.sim.moved[placement.Reason(reason)]++
}

// quiet begins a silence towards PostgreSQL: its walsenders end after a while. The caller holds
// sim.mu.
func (p *simulated) quiet(cause string) {
	p.silences++
	if p.silences > 1 {
		return
	}
	p.silence = time.Now()
	silence := p.silence
	for _, h := range p.holds {
		p.sim.inactive(h.pipeline, cause, p.sim.bounds.silent)
	}
	time.AfterFunc(walSenderTimeout, func() {
		p.sim.mu.Lock()
		defer p.sim.mu.Unlock()
		if p.silences == 0 || !p.silence.Equal(silence) {
			return
		}
		for _, h := range p.holds {
			p.sim.free(h)
		}
	})
}

// speak ends a silence. Pipelines without their slot try to have it again. The caller holds sim.mu.
func (p *simulated) speak() {
	if p.silences--; p.silences > 0 || p.dead {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(p.holds)) {
		switch h := p.holds[name]; {
		case h.phase != simStreaming:
		case p.sim.slots[name] == h:
			p.sim.active(name)
		default:
			h.phase = simStarting
			p.after(standby, h, p.attempt)
		}
	}
}

// pause stops all goroutines of the process, or has them go on.
func (p *simulated) pause(pause bool) {
	p.sim.mu.Lock()
	defer p.sim.mu.Unlock()
	if p.dead || pause == (p.paused != nil) {
		return
	}
	p.link.hold(pause)
	if pause {
		p.paused = make(chan struct{})
		p.quiet("pause")
		return
	}
	close(p.paused)
	p.paused, p.resumed, p.mended = nil, time.Now(), time.Now()
	late := p.late
	p.late = nil
	p.speak()
	for _, due := range late {
		due()
	}
}

// part cuts the process off from the brokers, or ends that.
func (p *simulated) part(part bool) {
	p.sim.mu.Lock()
	defer p.sim.mu.Unlock()
	if p.dead || part == p.cut {
		return
	}
	p.cut, p.mended = part, time.Now()
	p.link.hold(part)
}

// partSQL cuts the process off from PostgreSQL, or ends that.
func (p *simulated) partSQL(part bool) {
	p.sim.mu.Lock()
	defer p.sim.mu.Unlock()
	switch {
	case p.dead:
	case part:
		p.quiet("cut off from PostgreSQL")
	default:
		p.speak()
	}
}

// kill ends the process without a farewell. A machine's end, unlike a process's, does not close
// the connections to PostgreSQL.
func (p *simulated) kill(machine bool) {
	s := p.sim
	s.mu.Lock()
	if p.dead {
		s.mu.Unlock()
		<-p.ended
		return
	}
	holds := p.holds
	p.dead, p.holds, p.died = true, map[string]*simHold{}, time.Now()
	if p.paused != nil {
		close(p.paused)
		p.paused = nil
	}
	for _, name := range slices.Sorted(maps.Keys(holds)) {
		h := holds[name]
		cause, bound := "kill", s.bounds.lost
		if machine {
			cause, bound = "crash", s.bounds.silent
		}
		s.inactive(name, cause, bound)
		if machine {
			s.freeLater(h, walSenderTimeout)
		} else {
			s.free(h)
		}
	}
	s.mu.Unlock()
	p.link.sever()
	p.client.Close()
	p.stop()
	<-p.ended
}
