package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
)

// following is a process beside the follower of its sources of pipelines.
type following struct {
	process
	sources *follower
}

// Run is the process's, and joins the follower.
func (f following) Run(ctx context.Context) error {
	looking, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { f.sources.Run(looking) })
	defer all.Wait()
	defer stop()
	return f.process.Run(ctx)
}

// follower looks at the sources of pipelines at an interval, and applies changes.
// A change counts once two looks in a row have seen the same: a file may be half written, or
// be put back at once. Run is for a goroutine of the caller.
type follower struct {
	log   *zap.Logger
	apply func([]config.Pipeline)

	mu        sync.Mutex
	applied   *config.Look
	candidate *config.Look    // a change seen once; nil without
	restless  time.Time       // since when each look has seen another change; zero: the last has not
	at        time.Time       // of the last look
	said      map[string]bool // the faults in the log
}

// follow makes the follower for the sources of a configuration, and applies the first look.
func follow(o Options, counts *metrics.Set, apply func([]config.Pipeline)) *follower {
	f := &follower{log: o.Log, applied: o.Config.Look, at: time.Now()}
	f.apply = func(pipelines []config.Pipeline) {
		if o.Applying != nil {
			o.Applying(pipelines)
		}
		apply(pipelines)
	}
	counts.ObserveDiscovery(func() (pipelines, faults int, at time.Time) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.applied.Config.Pipelines), len(f.faults()), f.at
	})
	f.report()
	f.apply(f.applied.Config.Pipelines)
	return f
}

// Run looks until ctx ends, at multiples of the interval: members of a fleet see a change of
// their common listing together, and share out a new pipeline.
func (f *follower) Run(ctx context.Context) {
	for backoff.Sleep(ctx, untilLook(time.Now(), f.applied.Config.Discovery.Interval)) == nil {
		f.look(ctx)
	}
}

func untilLook(now time.Time, interval time.Duration) time.Duration {
	return now.Truncate(interval).Add(interval).Sub(now)
}

// look is a single look. Only Run's goroutine changes the follower, by look.
func (f *follower) look(ctx context.Context) {
	applied, candidate := f.next(ctx)
	if ctx.Err() != nil {
		return // a failure may be due to the end of ctx
	}
	if f.note(applied, candidate) {
		f.apply(applied.Config.Pipelines) // without mu: the set has a lock of its own, and asks for status under it
	}
}

// note notes a look's result.
func (f *follower) note(applied, candidate *config.Look) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.applied
	f.applied, f.candidate, f.at = applied, candidate, time.Now()
	switch {
	case candidate == nil:
		f.restless = time.Time{}
	case f.restless.IsZero():
		f.restless = f.at
	}
	f.report()
	if applied == before {
		return false
	}
	f.leave(before.Config.Pipelines)
	return true
}

// manyLooks is how many looks, and longLooking for how long looks, may be without a result.
const (
	manyLooks   = 10
	longLooking = time.Minute
)

// The reasons of looks without a result: no change counts.
var (
	errRestless = failure.Configf("leave columns that change by themselves out of discovery.names_query, and write the files less often",
		"the sources change from look to look, and no change counts until two looks in a row have seen the same")
	errStuck = failure.Configf("look after the volume of the files", "a look at the sources has not ended for long")
)

// next looks at the sources again: applied counts, candidate would after the same sight again.
func (f *follower) next(ctx context.Context) (applied, candidate *config.Look) {
	switch {
	case f.candidate == nil && !f.applied.Changed(ctx):
		return f.applied, nil
	case f.candidate != nil && !f.candidate.Changed(ctx):
		return f.candidate, nil
	default:
		return f.applied, f.applied.Again(ctx)
	}
}

// fault is the reason against a source.
type fault struct {
	Source string `json:"source"`
	Error  string `json:"error"`
	Remedy string `json:"remedy,omitempty"`
	// Running are the pipelines of the source as it was before.
	Running []string `json:"running"`
	idle    bool     // no pipeline of the source is to run
}

// faults of the last look that counts. The caller holds mu.
func (f *follower) faults() (all []fault) {
	add := func(source string, err error, pipelines []config.Pipeline, idle bool) {
		if err == nil {
			return
		}
		running := make([]string, len(pipelines))
		for i, p := range pipelines {
			running[i] = p.Name
		}
		all = append(all, fault{source, err.Error(), failure.RemedyOf(err), running, idle})
	}
	add("configuration", f.applied.Err, f.applied.Config.Pipelines, false)
	for _, part := range f.applied.Parts {
		add(part.Origin, part.Err, slices.Concat(part.Pipelines, part.Beside), part.Idle)
	}
	d := f.applied.Config.Discovery
	patience := max(longLooking, manyLooks*d.Interval)
	switch {
	case !f.restless.IsZero() && f.at.Sub(f.restless) > patience:
		add("discovery", errRestless, f.applied.Config.Pipelines, false)
	case time.Since(f.at) > patience+manyLooks*d.NamesTimeout:
		add("discovery", errStuck, f.applied.Config.Pipelines, false)
	}
	return all
}

// report logs each new fault, and the end of faults. The caller holds mu.
func (f *follower) report() {
	now := map[string]bool{}
	for _, one := range f.faults() {
		text := one.Source + ": " + one.Error
		now[text] = true
		if !f.said[text] {
			f.log.Error("a source of pipelines cannot be followed; its pipelines of before go on", zap.String("source", one.Source),
				zap.String("error", one.Error), zap.String("remedy", one.Remedy), zap.Strings("running", one.Running))
		}
	}
	if len(now) == 0 && len(f.said) > 0 {
		f.log.Info("all sources of pipelines can be followed again")
	}
	f.said = now
}

// leave tells of the slots of removed pipelines. The caller holds mu.
func (f *follower) leave(before []config.Pipeline) {
	names := map[string]bool{}
	for _, p := range f.applied.Config.Pipelines {
		names[p.Name] = true
	}
	shared := config.Sharing(f.applied.Config.Pipelines)
	for _, p := range before {
		if names[p.Name] || p.Config.Source.Mode == config.ModePoll || shared(p) {
			continue
		}
		f.log.Warn("a pipeline was removed; its slot stays, and keeps the server's log from now on",
			zap.String("pipeline", p.Name), zap.String("slot", p.Config.Source.Slot),
			zap.String("remedy", fmt.Sprintf("if it is gone for good, in its database: SELECT pg_drop_replication_slot('%s'); DROP PUBLICATION %q", p.Config.Source.Slot, p.Config.Source.Publication)))
	}
}

// discovered is the content of /status about the sources of pipelines.
type discovered struct {
	LastLook time.Time `json:"last_look"`
	// Pending: a change was seen once, and counts if the next look sees the same.
	Pending bool    `json:"pending"`
	Faults  []fault `json:"faults"`
}

func (f *follower) status() discovered {
	f.mu.Lock()
	defer f.mu.Unlock()
	return discovered{f.at, f.candidate != nil, append([]fault{}, f.faults()...)}
}

// summary is for the fleet. Without a follower nothing can be at fault.
func (f *follower) summary() fleet.Faults {
	if f == nil {
		return fleet.Faults{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.faults()
	if len(all) == 0 {
		return fleet.Faults{}
	}
	return fleet.Faults{Count: len(all), Source: all[0].Source, Error: all[0].Error}
}

// reasons are against readiness: faulty sources without any running pipeline.
func (f *follower) reasons() (all []string) {
	for _, one := range f.status().Faults {
		if one.idle {
			all = append(all, "discovery: "+one.Source+": "+strings.Join(strings.Fields(one.Error), " "))
		}
	}
	return all
}
