package fleet

import (
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// idle has all pipelines without events.
func (s *sim) idle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.rates)
}

// wantMoves checks how many pipelines at work have moved since the last look.
func (s *sim) wantMoves(after string, most int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.moved, placement.Gone)
	n := 0
	for _, moves := range s.moved {
		n += moves
	}
	if n > most {
		s.t.Errorf("%d moves after %s, want at most %d: %v", n, after, most, s.moved)
	}
	clear(s.moved)
}

// wantShare checks the numbers of pipelines of the members.
func (s *sim) wantShare(least, most int) {
	s.t.Helper()
	for _, p := range s.all() {
		if n := len(p.Holds()); n < least || n > most {
			s.t.Errorf("%s has %d pipelines, want %d to %d", p.name, n, least, most)
		}
	}
}

// stir has a process tell the group news without consequence.
func (s *sim) stir(p *simulated) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.offers = slices.Clone(p.offers)
	p.offers[0].Loaded++
}

// traffic measures the bytes between members and brokers: of a minute at rest, and of a
// rebalance; and the size of the group's record.
func (s *sim) traffic(members, pipelines int) {
	s.t.Helper()
	before := s.bytes.Load()
	s.wait(time.Minute)
	rest := s.bytes.Load() - before

	s.stir(s.all()[0])
	before = s.bytes.Load()
	s.wait(simRound)
	rebalance := s.bytes.Load() - before - rest/30

	record := 0
	for _, m := range must.Get(broker.DescribeGroup(s.t.Context(), s.operator, "f"))(s.t).Members {
		record += len(m.ProtocolMetadata) + len(m.MemberAssignment)
	}
	s.t.Logf("%d members, %d pipelines: %d kB a minute at rest, %d kB a rebalance, %d kB in the group's record",
		members, pipelines, rest>>10, rebalance>>10, record>>10)
	if record > 1<<20 {
		s.t.Errorf("the group's record has %d bytes, more than message.max.bytes", record)
	}
}
