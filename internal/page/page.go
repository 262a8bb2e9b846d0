// Package page serves the page at /: the flow of events, standstills with time,
// reason and remedy. A browser keeps the page open, and has an update every
// second.
//
// Invariants:
//
//  1. /status and /metrics are the only sources of the page's states and numbers.
//  2. The page changes nothing, and loads nothing from elsewhere.
//  3. Memory is bounded: an hour of samples, some events, some viewers.
//  4. Keys, events and dead letters go only to viewers allowed to see them; see
//     guard.
//  5. No part waits for a viewer: a slow viewer misses updates.
//
// Non-goals: users, TLS, anything older than an hour.
package page

import (
	"context"
	"embed"
	"mime"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
)

//go:embed static
var static embed.FS

// Pipeline is a connector on the page. All members are required.
type Pipeline struct {
	// Name is empty for the only connector of a configuration without
	// pipelines.
	Name string `json:"name"`
	// Mode, Tables, Slot and Publication are those of source; the last two are
	// empty with polling. Sink is the destination of events.
	Mode        string   `json:"mode"`
	Tables      []string `json:"tables"`
	Slot        string   `json:"slot"`
	Publication string   `json:"publication"`
	Sink        string   `json:"sink"`
	// Status returns the pipeline's part of /status. Status is called concurrently
	// and must not block.
	Status func() any `json:"-"`
	// Recent remembers the pipeline's events, and is shared with the delivery.
	Recent *delivery.Recent `json:"-"`
}

// Page is a process's page. Make it with New, and Run it once.
type Page struct {
	guard   *guard
	version string
	started time.Time
	metrics prometheus.Gatherer
	stopped chan struct{} // closed at the end of Run
	looks   sync.WaitGroup

	mu      sync.Mutex          // guards the rest
	shown   []*shown            // the pipelines
	sampled map[string]*reading // at the last sample of the charts
	at      time.Time           // of the last sample
	viewers map[*viewer]struct{}
	entered uint64 // viewers so far
	fleet   shownFleet
}

// shown is a pipeline on the page.
type shown struct {
	Pipeline
	past *history
	sent uint64 // the number of the last event sent
}

// New returns a page without pipelines, with the metrics of all. Show adds pipelines.
func New(o Options, version string, metrics prometheus.Gatherer) *Page {
	return &Page{
		guard: newGuard(o), version: version, started: time.Now(), metrics: metrics,
		stopped: make(chan struct{}), viewers: map[*viewer]struct{}{},
	}
}

// Show puts the pipelines on the page, in place of those before. A pipeline with the same
// name as before keeps its charts. Open pages come back by themselves, to see the others.
func (p *Page) Show(pipelines []Pipeline) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := map[string]*shown{}
	for _, s := range p.shown {
		before[s.Name] = s
	}
	p.shown = nil
	for _, pipeline := range pipelines {
		s := &shown{Pipeline: pipeline, past: newHistory()}
		if old := before[pipeline.Name]; old != nil {
			s.past = old.past
			if old.Recent == pipeline.Recent {
				s.sent = old.sent
			}
		}
		p.shown = append(p.shown, s)
	}
	for v := range p.viewers {
		p.remove(v)
		close(v.gone)
	}
}

// Register adds the page's paths.
func (p *Page) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", p.guard.admit(file("index.html")))
	for _, name := range []string{"page.css", "icon.svg", "page.js", "judge.js", "rows.js", "instances.js", "fleet.js", "head.js", "theme.js", "flow.js", "chart.js", "text.js"} {
		mux.HandleFunc("GET /"+name, p.guard.admit(file(name)))
	}
	mux.HandleFunc("GET /live", p.guard.admit(p.live))
}

// Knows returns why a request with this Host header is refused; nil if the header
// names this server.
func (p *Page) Knows(host string) error { return p.guard.knows(host) }

// file answers with an embedded file.
func file(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// ServeFileFS would lead index.html elsewhere.
		content, err := static.ReadFile("static/" + name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
		_, _ = w.Write(content) // a client that went away is not our problem
	}
}

// Run takes samples, and keeps viewers up to date, until ctx ends; their requests
// end then, too.
func (p *Page) Run(ctx context.Context) {
	defer p.looks.Wait()
	defer close(p.stopped)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		p.step(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// step runs every second. Without viewers step only takes a sample for the charts,
// every other time.
func (p *Page) step(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookAtFleet(now)
	due := now.Sub(p.at) >= fineStep-100*time.Millisecond
	if !due && len(p.viewers) == 0 {
		return
	}
	reading := read(p.metrics)
	if due {
		p.sample(now, reading)
	}
	p.send(now, reading, due)
}

// sample notes the charts' next point. The caller holds mu.
func (p *Page) sample(now time.Time, reading map[string]*reading) {
	for _, pipeline := range p.shown {
		if r := reading[pipeline.Name]; r != nil {
			pipeline.past.add(sample{at: float64(now.Unix()), values: r.since(p.sampled[pipeline.Name], now.Sub(p.at).Seconds())})
		}
		pipeline.Status() // notes the beginning of readiness
	}
	p.sampled, p.at = reading, now
}
