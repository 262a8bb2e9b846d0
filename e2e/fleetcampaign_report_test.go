package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
)

// standstills is a hook of a consumer: the times from the commits of events to their first
// arrivals. An event waits for as long as the pipeline stands still.
type standstills struct {
	mu      sync.Mutex
	seen    map[string]bool          // ids
	longest map[string]time.Duration // by topic
	latest  map[string]time.Time     // by topic: the commit of the latest event
}

func newStandstills() *standstills {
	return &standstills{seen: map[string]bool{}, longest: map[string]time.Duration{}, latest: map[string]time.Time{}}
}

// OnFetchRecordUnbuffered implements kgo.HookFetchRecordUnbuffered.
func (s *standstills) OnFetchRecordUnbuffered(r *kgo.Record, polled bool) {
	if !polled || r.Attrs.IsControl() {
		return
	}
	rec := checker.RecordOf(r)
	committed, err := time.Parse(time.RFC3339Nano, rec.Header("cdc-time"))
	if err != nil {
		return // the checker wants the header
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := rec.Header("id"); !s.seen[id] {
		s.seen[id] = true
		s.longest[r.Topic] = max(s.longest[r.Topic], time.Since(committed))
		s.latest[r.Topic] = committed
	}
}

// flowing counts the topics with an event committed since then.
func (s *standstills) flowing(since time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.latest {
		if at.After(since) {
			n++
		}
	}
	return n
}

// take returns the longest times since the last take.
func (s *standstills) take() map[string]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest := s.longest
	s.longest = map[string]time.Duration{}
	return longest
}

// fleetReport is a campaign's disturbances and their outcome.
type fleetReport struct {
	began time.Time
	done  map[string]*fleetOutcome
}

// fleetOutcome is the outcome of all disturbances of a single kind, or of two kinds at once.
type fleetOutcome struct {
	times       int
	hit, others time.Duration // the longest standstills: of pipelines of disturbed members, and of all others
	over        int           // standstills beyond fleetBound
}

// add notes a disturbance: the standstills by topic, and the topics of disturbed members.
func (r *fleetReport) add(name string, standstills map[string]time.Duration, hit map[string]bool) {
	if strings.Contains(name, both) {
		name = pairs
	}
	o := r.done[name]
	if o == nil {
		o = &fleetOutcome{}
		r.done[name] = o
	}
	o.times++
	for topic, longest := range standstills {
		if hit[topic] {
			o.hit = max(o.hit, longest)
		} else {
			o.others = max(o.others, longest)
		}
		if longest > fleetBound {
			o.over++
		}
	}
}

const (
	both  = " + " // between the kinds of two disturbances at once
	pairs = "two at once"
)

// text is the table of all kinds.
func (r *fleetReport) text(took time.Duration) string {
	var b strings.Builder
	times, over := 0, 0
	for _, o := range r.done {
		times += o.times
		over += o.over
	}
	fmt.Fprintf(&b, "fleet campaign: %d disturbances in %s; longest standstill of a pipeline, s: of disturbed members, of others; beyond %s\n",
		times, took.Round(time.Second), fleetBound)
	line := func(times int, name, hit, others string, over int) {
		fmt.Fprintf(&b, "%5d  %-44s %6s %6s %5d\n", times, name, hit, others, over)
	}
	for _, name := range slices.Sorted(maps.Keys(r.done)) {
		o := r.done[name]
		line(o.times, name, fmt.Sprintf("%.1f", o.hit.Seconds()), fmt.Sprintf("%.1f", o.others.Seconds()), o.over)
	}
	line(times, "all", "", "", over)
	return b.String()
}
