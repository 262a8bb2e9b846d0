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
	goal   int
	calm   time.Duration // the longest standstill before the first disturbance
	began  time.Time
	took   time.Duration
	done   map[string]*fleetOutcome
	judged map[string]*checker.Report // by delivery
}

// newFleetReport returns an empty report. undisturbed are the standstills before the first
// disturbance.
func newFleetReport(goal int, undisturbed map[string]time.Duration) fleetReport {
	r := fleetReport{goal: goal, began: time.Now(), done: map[string]*fleetOutcome{}, judged: map[string]*checker.Report{}}
	for _, longest := range undisturbed {
		r.calm = max(r.calm, longest)
	}
	return r
}

// fleetOutcome is the outcome of all disturbances of a single kind, or of two kinds at once.
type fleetOutcome struct {
	times  int
	hit    []time.Duration // each disturbed pipeline's longest standstill, a disturbance at a time
	others time.Duration   // the longest standstill of all others
	over   int             // standstills beyond fleetBound
}

// add notes a disturbance: the standstills by topic, and the topics of disturbed members.
func (r *fleetReport) add(name string, standstills map[string]time.Duration, hit map[string]bool) {
	r.took = time.Since(r.began)
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
			o.hit = append(o.hit, longest)
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

// text is the verdict and the table of all kinds.
func (r *fleetReport) text() string {
	var b strings.Builder
	all := &fleetOutcome{}
	for _, o := range r.done {
		all.times += o.times
		all.hit = append(all.hit, o.hit...)
		all.others = max(all.others, o.others)
		all.over += o.over
	}
	fmt.Fprintf(&b, "fleet campaign: %d of %d disturbances in %s\n", all.times, r.goal, r.took.Round(time.Second))
	for _, delivery := range slices.Sorted(maps.Keys(r.judged)) {
		j := r.judged[delivery]
		found := map[checker.Kind]int{}
		for _, p := range j.Problems {
			found[p.Kind]++
		}
		fmt.Fprintf(&b, "%s: %d events, %d lost, %d reordered, %d repeated, %d other problems\n", delivery, j.Committed, found[checker.Lost],
			found[checker.Reordered], j.Repeated, len(j.Problems)-found[checker.Lost]-found[checker.Reordered])
	}
	if len(r.judged) == 0 {
		b.WriteString("the events are not judged: the campaign has failed before\n")
	}
	fmt.Fprintf(&b, "without a disturbance no event was later than %s\n", r.calm.Round(100*time.Millisecond))
	fmt.Fprintf(&b, "standstills of pipelines in s, of disturbed members: longest, median; longest of others; how many beyond %s, the session timeout + 2s\n", fleetBound)
	for _, name := range slices.Sorted(maps.Keys(r.done)) {
		r.done[name].line(&b, name)
	}
	all.line(&b, "all")
	return b.String()
}

func (o *fleetOutcome) line(b *strings.Builder, name string) {
	var longest, median time.Duration
	if len(o.hit) > 0 {
		slices.Sort(o.hit)
		longest, median = o.hit[len(o.hit)-1], o.hit[len(o.hit)/2]
	}
	fmt.Fprintf(b, "%5d  %-44s %6.1f %6.1f %6.1f %5d\n", o.times, name, longest.Seconds(), median.Seconds(), o.others.Seconds(), o.over)
}
