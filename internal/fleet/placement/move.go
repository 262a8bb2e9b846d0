package placement

// move begins the most valuable move, and reports whether there is any. Drains come first,
// then rollouts, then zones and loads.
func (s *state) move() bool {
	for _, try := range []func() bool{s.drain, s.rollOut, s.balance, s.rezone} {
		if try() {
			return true
		}
	}
	return false
}

// begin takes the pipeline from its owner.
func (s *state) begin(p *pipeline, to *member, why Reason) {
	from := p.owner
	s.moves = append(s.moves, Move{Pipeline: p.name, From: from.Name, To: to.Name, Reason: why})
	if from == to { // with the newest specification
		s.moving++
		from.run[p.name] = Place{Pipeline: p.name, Spec: p.newest.Spec, Rate: p.rate}
		p.held.Spec, p.held.Changing = p.newest.Spec, true
		return
	}
	delete(from.run, p.name)
	from.load -= p.weight()
	to.load += p.weight()
	s.release(p)
}

// owned are the pipelines at work, by name.
func (s *state) owned(yield func(*pipeline) bool) {
	for _, p := range s.pipelines {
		if p.owner != nil && p.stuck == nil && !p.held.Changing && !yield(p) {
			return
		}
	}
}

// drain moves a pipeline off a drained member.
func (s *state) drain() bool {
	for p := range s.owned {
		if !p.owner.Drained {
			continue
		}
		if to := s.best(p, (*member).takes); to != nil {
			s.begin(p, to, Drain)
			return true
		}
	}
	return false
}

// rollOut moves a pipeline with an older specification to the newest, on its own member if the
// newest is known there. The first member with a new file takes no more than its share: soon
// others have the file, too.
func (s *state) rollOut() bool {
	for p := range s.owned {
		if p.newest.Spec == "" || p.held.Spec == p.newest.Spec {
			continue
		}
		if p.owner.has(p) {
			s.begin(p, p.owner, Rollout)
			return true
		}
		if to := s.best(p, (*member).takes); to != nil && to.load < s.mean {
			s.begin(p, to, Rollout)
			return true
		}
	}
	return false
}

// balance moves the pipeline with the greatest gain for the balance of two members. A move would only
// delay a pipeline that starts.
func (s *state) balance() bool {
	var moved *pipeline
	var to *member
	least := 0.0
	for p := range s.owned {
		if !p.owner.takes() || p.held.Starting {
			continue
		}
		best := s.best(p, (*member).takes)
		if best == nil {
			continue
		}
		w, apart := p.weight(), p.owner.load-best.load
		margin := tolerance * s.mean
		if s.away(best, p) && !s.away(p.owner, p) {
			margin *= 2
		}
		if apart-w < margin {
			continue
		}
		if gain := w * (apart - w); gain > least { // of the sum of squares, halved
			moved, to, least = p, best, gain
		}
	}
	if moved == nil {
		return false
	}
	s.begin(moved, to, Balance)
	return true
}

// rezone moves a pipeline to the zone of its database, unless the loads would then differ too
// much, or the pipeline starts.
func (s *state) rezone() bool {
	for p := range s.owned {
		if !p.owner.takes() || p.held.Starting || !s.away(p.owner, p) {
			continue
		}
		to := s.best(p, func(m *member) bool { return m.takes() && !s.away(m, p) })
		if to != nil && to.load+p.weight()-p.owner.load < tolerance*s.mean {
			s.begin(p, to, Zone)
			return true
		}
	}
	return false
}
