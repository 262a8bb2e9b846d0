package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// event is a kind of thing to happen.
type event struct {
	name string
	do   func(*sim)
}

// events are all kinds, and equally likely.
var events = []event{
	{"a process is killed", func(s *sim) { s.killOne(false, 25*time.Second) }},
	{"a machine dies", func(s *sim) { s.killOne(true, 90*time.Second) }},
	{"a process pauses", func(s *sim) { s.disturb((*simulated).pause, 100*time.Second) }},
	{"a process is cut off from the brokers", func(s *sim) { s.disturb((*simulated).part, 60*time.Second) }},
	{"a process is cut off from PostgreSQL", func(s *sim) { s.disturb((*simulated).partSQL, 100*time.Second) }},
	{"a machine is cut off", func(s *sim) {
		s.disturb(func(p *simulated, part bool) { p.part(part); p.partSQL(part) }, 90*time.Second)
	}},
	{"a way to the brokers is slow", func(s *sim) {
		s.disturb(func(p *simulated, slow bool) {
			if slow {
				p.link.slow(150 * time.Millisecond)
			} else {
				p.link.slow(time.Millisecond)
			}
		}, 60*time.Second)
	}},
	{"pipelines will drain slowly", func(s *sim) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, name := range s.names() {
			s.slow[name] = s.slow[name] || s.random.IntN(4) == 0
		}
	}},
	{"an operator drains a member", (*sim).drainOne},
	{"a second process of a name", (*sim).replaceOne},
	{"a deployment", func(s *sim) { s.newFile(); s.roll(s.memberNames()) }},
	{"a new file, without a restart", func(s *sim) {
		s.newFile()
		for _, p := range s.all() {
			s.in(s.within(0, 20*time.Second), func() { s.read(p, s.newest()) })
		}
	}},
	{"a restart with an old file", func(s *sim) {
		if p := s.victim(); p != nil {
			s.restart(p, s.files[s.random.IntN(len(s.files))], func() {})
		}
	}},
	{"another coordinator", func(s *sim) {
		load := s.cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.LeaveGroup, kmsg.DescribeGroups}, Group: "f",
			Err: kerr.CoordinatorLoadInProgress, Count: -1, When: s.kafkan.refuse,
		})
		s.cluster.RehashCoordinators()
		s.in(s.within(0, simSession/2), load.Remove)
	}},
	{"other loads", func(s *sim) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, name := range s.names() {
			if s.random.IntN(10) == 0 {
				s.rates[name] = float64(s.random.IntN(100))
			}
		}
	}},
}

// happen has something happen.
func (s *sim) happen() {
	e := events[s.random.IntN(len(events))]
	s.mu.Lock()
	s.happened("%s", e.name)
	s.mu.Unlock()
	e.do(s)
}

// names are the pipelines of the newest file. The caller holds mu.
func (s *sim) names() []string { return slices.Sorted(maps.Keys(s.files[len(s.files)-1].specs)) }

func (s *sim) newest() *simFile { return s.files[len(s.files)-1] }

func (s *sim) memberNames() (names []string) {
	for _, p := range s.all() {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// victim is a process without trouble; nil, if too few would be left.
func (s *sim) victim() *simulated {
	var well []*simulated
	for _, p := range s.all() {
		s.mu.Lock()
		if p.well() {
			well = append(well, p)
		}
		s.mu.Unlock()
	}
	if len(well) <= max(2, len(s.memberNames())/2) {
		return nil
	}
	return well[s.random.IntN(len(well))]
}

// told notes an event that concerns a process.
func (s *sim) told(format string, values ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.happened(format, values...)
}

func (s *sim) killOne(machine bool, longest time.Duration) {
	p := s.victim()
	if p == nil {
		return
	}
	s.told("%s", p.name)
	p.kill(machine)
	s.in(s.within(500*time.Millisecond, longest), func() {
		if s.alive(p.name) == nil {
			s.told("%s is started again", p.name)
			s.start(p.name, s.newest())
		}
	})
}

// disturb disturbs a process for a while.
func (s *sim) disturb(how func(p *simulated, on bool), longest time.Duration) {
	p := s.victim()
	if p == nil {
		return
	}
	s.told("%s", p.name)
	how(p, true)
	s.in(s.within(time.Second, longest), func() {
		s.told("%s is as before", p.name)
		how(p, false)
	})
}

func (s *sim) drainOne() {
	p := s.victim()
	if p == nil {
		return
	}
	s.told("%s", p.name)
	s.drain(p.name, true)
	s.in(s.within(20*time.Second, 120*time.Second), func() { s.drain(p.name, false) })
}

// drain tells a member to be drained, or not to be any more. A member gone meanwhile is none to
// drain.
func (s *sim) drain(name string, drained bool) {
	client := s.client("operator", newLink(&s.network, &s.bytes, time.Millisecond)) // another's join would hold it up
	s.working.Go(func() {
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := Drain(ctx, client, "f", name, drained)
		s.told("the drain (%v) of %s: %v", drained, name, err)
	})
}

// replaceOne starts a second process of a name, perhaps because nothing was heard of the first.
func (s *sim) replaceOne() {
	p := s.victim()
	if p == nil {
		return
	}
	s.told("%s", p.name)
	switch s.random.IntN(3) {
	case 0:
		p.pause(true)
		s.in(s.within(time.Second, 90*time.Second), func() { p.pause(false) })
	case 1:
		p.part(true)
		s.in(s.within(time.Second, 90*time.Second), func() { p.part(false) })
	}
	s.in(s.within(0, 20*time.Second), func() { s.start(p.name, s.newest()) })
}

// restart has a process end by SIGTERM, and another begin.
func (s *sim) restart(p *simulated, file *simFile, then func()) {
	s.told("SIGTERM to %s", p.name)
	s.terminate(p)
	var look func()
	look = func() {
		select {
		case <-p.ended:
			s.in(s.within(time.Second, 5*time.Second), func() {
				if s.alive(p.name) == nil {
					s.told("%s is started again", p.name)
					s.start(p.name, file)
				}
				then()
			})
		default:
			s.in(simStep, look)
		}
	}
	look()
}

// roll restarts the processes one by one, with the newest file.
func (s *sim) roll(names []string) {
	if len(names) == 0 {
		return
	}
	next := func() { s.in(s.within(time.Second, 10*time.Second), func() { s.roll(names[1:]) }) }
	p := s.alive(names[0])
	s.mu.Lock()
	well := p != nil && p.well()
	s.mu.Unlock()
	if well {
		s.restart(p, s.newest(), next)
	} else {
		next()
	}
}

// newFile changes, adds and removes pipelines.
func (s *sim) newFile() {
	s.mu.Lock()
	defer s.mu.Unlock()
	file := &simFile{specs: map[string]string{}}
	names := s.names()
	for _, name := range names {
		file.specs[name] = s.newest().specs[name]
		switch s.random.IntN(20) {
		case 0, 1, 2:
			file.specs[name] = s.spec()
		case 3:
			if len(names) > 10 {
				delete(file.specs, name)
			}
		}
	}
	for i := range s.random.IntN(1 + len(names)/20) {
		file.specs[fmt.Sprintf("tenant-%d-%d", len(s.files), i)] = s.spec()
	}
	s.files = append(s.files, file)
}

// finish ends all troubles, and judges the placement.
func (s *sim) finish(members int) {
	for len(s.agenda) > 0 {
		s.wait(time.Second)
	}
	s.working.Wait()
	s.told("the end of all troubles")
	for i := range members {
		if name := fmt.Sprintf("outbox-%d", i); s.alive(name) == nil {
			s.start(name, s.newest())
		}
	}
	for _, p := range s.all() {
		s.read(p, s.newest())
	}
	s.wait(s.bounds.lost)
	s.mu.Lock()
	clear(s.begun)
	s.mu.Unlock()
	s.settle(s.bounds.silent+time.Duration(len(s.newest().specs)/s.moves+1)*(longestDrain+s.bounds.move), 30*time.Second)
	s.judgePlacement()
}

// judgePlacement looks for pipelines at the wrong place, after all have come to rest.
func (s *sim) judgePlacement() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.newest().specs)) {
		h := s.slots[name]
		switch {
		case h == nil || h.of.dead:
			s.fault("%s has no member at the end", name)
		case h.spec != s.newest().specs[name]:
			s.fault("%s is of an old file at the end", name)
		}
		if s.begun[name] > 3 {
			s.fault("%s has begun %d times since the last event", name, s.begun[name])
		}
	}
	for name, h := range s.slots {
		if s.newest().specs[name] == "" {
			s.fault("%s was removed, and is still at %s", name, h.of.name)
		}
	}
}
