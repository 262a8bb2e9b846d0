package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// report is a campaign's disturbances and their outcome.
type report struct {
	began    time.Time
	kills    map[string]int // by victim
	done     map[string]*outcome
	upgrades int
}

// outcome is that of all disturbances of a single kind, or pair of kinds.
type outcome struct {
	times int
	worst time.Duration // until everything committed before the end was published
}

func (r *report) add(name string, took time.Duration) {
	o := r.done[name]
	if o == nil {
		o = &outcome{}
		r.done[name] = o
	}
	o.times++
	o.worst = max(o.worst, took)
}

// text is the report: kills, producers, and disturbances by kind. Pairs are
// counted together.
func (r *report) text(took time.Duration, producers map[int64]int16) string {
	var b strings.Builder
	times, pairs := 0, &outcome{}
	for name, o := range r.done {
		times += o.times
		if strings.Contains(name, " + ") {
			pairs.times += o.times
			pairs.worst = max(pairs.worst, o.worst)
		}
	}
	fmt.Fprintf(&b, "campaign: %d disturbances in %s, %d of them of two kinds at once\n", times, took.Round(time.Second), pairs.times)
	for _, victim := range slices.Sorted(maps.Keys(r.kills)) {
		fmt.Fprintf(&b, "%5d  kills of %s\n", r.kills[victim], victim)
	}
	fmt.Fprintf(&b, "%5d  times transaction.version was changed\n", r.upgrades)
	for _, id := range slices.Sorted(maps.Keys(producers)) {
		fmt.Fprintf(&b, "%5d  the last epoch of producer id %d\n", producers[id], id)
	}
	for _, name := range slices.Sorted(maps.Keys(r.done)) {
		if o := r.done[name]; !strings.Contains(name, " + ") {
			fmt.Fprintf(&b, "%5d  %-52s all published %s after its end at the latest\n", o.times, name, o.worst.Round(100*time.Millisecond))
		}
	}
	fmt.Fprintf(&b, "%5d  %-52s all published %s after its end at the latest\n", pairs.times, "pairs", pairs.worst.Round(100*time.Millisecond))
	return b.String()
}
