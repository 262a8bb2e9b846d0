package pipeline

import (
	"slices"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// state is a member's.
type state int

const (
	stateRunning state = iota
	stateStopping
	stateEnded // by itself or after a stop; nothing of the pipeline is open any more
)

// steps are next on the way to exactly the wanted pipelines: members to stop, ended members to
// drop, pipelines to start. A changed pipeline is stopped in a first call, dropped and started
// in another. A pipeline waits for the end of a member with the same slot, checkpoint or
// table. An ended member stays, unless its specification changes. Pipelines with nothing new but
// a secret take turns while they flow: the former secret still serves them, and many may share it.
func steps(members []*member, wanted []config.Pipeline) (stop, drop []*member, start []config.Pipeline) {
	var stay []*member
	busy := slices.ContainsFunc(members, func(m *member) bool { return m.state == stateStopping && m.renewed(wanted) })
	for _, m := range members {
		switch kept := m.kept(wanted); {
		case m.state == stateEnded && !kept:
			drop = append(drop, m)
			continue
		case m.state == stateRunning && !kept:
			if turns := m.renewed(wanted) && m.flows(); !turns || !busy {
				stop = append(stop, m)
				busy = busy || turns
			}
		}
		stay = append(stay, m)
	}
	names := map[string]bool{}
	var atWork []config.Pipeline
	for _, m := range stay {
		names[m.spec.Name] = true
		if m.state != stateEnded {
			atWork = append(atWork, m.spec)
		}
	}
	shares := config.Sharing(atWork)
	for _, w := range wanted {
		if !names[w.Name] && !shares(w) {
			start = append(start, w)
		}
	}
	return stop, drop, start
}
