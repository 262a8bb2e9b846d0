package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// explain returns an error unless, for each key, an order of the calls explains
// the answers. A call takes effect at a single
// moment between the beginning and the end; calls that do not overlap keep
// their order.
func explain(o oracle, calls []call) error {
	byKey := make(map[storage.Key][]call)
	for _, c := range calls {
		byKey[c.key] = append(byKey[c.key], c)
	}
	for _, calls := range byKey {
		slices.SortStableFunc(calls, func(a, b call) int { return int(a.to - b.to) })
		if err := (&search{oracle: o, calls: calls}).run(); err != nil {
			return err
		}
	}
	return nil
}

// search goes through the beginnings and ends of a key's calls. Between any two,
// the search knows every combination of a possible record and the calls under
// way with an effect already.
type search struct {
	oracle oracle
	calls  []call // by their ends
	// open are the calls under way, by client: each makes a call at a time.
	open [maxClients + 1]*call
}

// config is such a combination.
type config struct {
	belief belief
	done   uint64 // bit n: the call of client n took effect
}

// edge is a beginning or an end.
type edge struct {
	at    time.Duration
	end   bool
	rank  int // among the edges of a moment: ends, calls without duration, beginnings
	index int
}

func (s *search) run() error {
	configs := map[config]struct{}{{}: {}}
	for _, e := range s.edges() {
		c := &s.calls[e.index]
		if !e.end {
			s.open[c.client] = c
			continue
		}
		next := make(map[config]struct{})
		seen := make(map[config]struct{})
		for from := range configs {
			s.reach(from, c.client, seen, next)
		}
		if len(next) == 0 {
			return violation(*c, s.calls[:e.index], beliefs(configs))
		}
		s.open[c.client] = nil
		configs = next
	}
	return nil
}

// edges returns the beginnings and ends in order of time. Calls that only touch
// do not overlap.
func (s *search) edges() []edge {
	edges := make([]edge, 0, 2*len(s.calls))
	for i, c := range s.calls {
		begin, end := edge{at: c.from, rank: 2, index: i}, edge{at: c.to, end: true, index: i}
		if c.from == c.to {
			begin.rank, end.rank = 1, 1
		}
		edges = append(edges, begin, end)
	}
	slices.SortStableFunc(edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank))
	})
	return edges
}

// reach lets calls under way take effect, in every order, up to the client's,
// and adds the resulting combinations to next.
func (s *search) reach(from config, client int, seen, next map[config]struct{}) {
	if _, known := seen[from]; known {
		return
	}
	seen[from] = struct{}{}
	if from.done&(1<<client) != 0 {
		from.done &^= 1 << client
		next[from] = struct{}{}
		return
	}
	for n, c := range s.open {
		if c == nil || from.done&(1<<n) != 0 {
			continue
		}
		for _, b := range s.oracle.after(from.belief, *c) {
			s.reach(config{belief: b, done: from.done | 1<<n}, client, seen, next)
		}
	}
}

func beliefs(configs map[config]struct{}) []belief {
	var all []belief
	for c := range configs {
		all = append(all, c.belief)
	}
	return all
}
