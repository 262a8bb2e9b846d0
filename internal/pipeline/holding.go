package pipeline

import (
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// whyDropped is why Drop stops a pipeline.
const whyDropped = "this process is no member of the fleet now, and another may have the pipeline"

// Drop stops all pipelines without patience, also in the midst of a stop, and returns at
// once.
func (s *Set) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = nil
	for _, m := range s.members {
		m.hurry()
		if m.state == stateRunning {
			s.halt(m, whyDropped)
		}
	}
	s.poke()
}

// held is a pipeline to run, or before its end.
type held struct {
	config.Pipeline
	stopping bool
	acked    int64 // events so far
	// at is the configuration at work, perhaps a former; nil: none. halted: at drains.
	at     *config.Config
	halted bool
	// starting: begun a moment ago, and not ready yet.
	starting bool
}

// startPatience is how long a pipeline counts as starting. A pipeline that is not ready by then has
// another reason, such as a database that is down.
const startPatience = 30 * time.Second

// uses lists the configurations of all members.
func (s *Set) uses() (all []*config.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		all = append(all, m.spec.Config)
	}
	return all
}

// holding lists the pipelines to run, and the others before their end.
func (s *Set) holding() (all []held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.wanted {
		h := held{Pipeline: w}
		if m := s.member(w.Name); m != nil {
			h.acked = m.metrics.Acked()
			if m.state != stateEnded {
				h.at, h.halted = m.spec.Config, m.state == stateStopping
				h.starting = !h.halted && time.Since(m.begun) < startPatience && !m.flows()
			}
		}
		all = append(all, h)
	}
	for _, m := range s.members {
		wanted := slices.ContainsFunc(s.wanted, func(w config.Pipeline) bool { return w.Name == m.name })
		if !wanted && m.state != stateEnded {
			all = append(all, held{Pipeline: m.spec, stopping: true, acked: m.metrics.Acked()})
		}
	}
	return all
}
