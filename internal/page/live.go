package page

import (
	"cmp"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
)

const (
	// mostViewers bounds the open pages at a time. A further viewer displaces
	// another; see displace.
	mostViewers = 50
	// writeTimeout bounds an update; a viewer taking longer is cut off.
	writeTimeout = 10 * time.Second
)

// viewer is an open page.
type viewer struct {
	events  bool   // may see events
	from    string // address, without a port
	number  uint64 // in the order of arrival
	updates chan []byte
	gone    chan struct{} // closed when displaced
	stop    []func()      // of watching
}

// hello is the first message: everything constant, and the past.
type hello struct {
	Version   string    `json:"version"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Started   time.Time `json:"started"`
	Peers     []string  `json:"peers"`
	Events    bool      `json:"events"`     // whether the viewer sees events
	EventsWhy string    `json:"events_why"` // why not, or token if required
	Pipelines []past    `json:"pipelines"`
}

// past is a pipeline, and the past of its charts.
type past struct {
	Pipeline
	Fine   *ring `json:"fine"`
	Coarse *ring `json:"coarse"`
}

// update is every other message.
type update struct {
	At        time.Time `json:"at"`
	Pipelines []present `json:"pipelines"`
	// Fleet is the latest look at the fleet, where there is a new one.
	Fleet json.RawMessage `json:"fleet,omitempty"`
}

// present is a pipeline's present state.
type present struct {
	Status json.RawMessage `json:"status"` // as in /status
	// Now is the latest sample: a rate is the same all over the page.
	Now sample `json:"now"`
	// Charted: Now is new, and a point of the charts; Coarse, if not null, is a
	// point of the last hour's charts.
	Charted  bool               `json:"charted"`
	Coarse   *sample            `json:"coarse,omitempty"`
	Totals   map[string]float64 `json:"totals"`
	Topics   topics             `json:"topics"`
	Events   []delivery.Seen    `json:"events,omitempty"`
	Rejected []delivery.Seen    `json:"rejected,omitempty"`
}

// totals are the metrics shown unchanged.
var totals = []string{
	"events_published_total", "bytes_published_total", "events_dead_lettered_total", "events_skipped_total", "events_quarantined_total",
	"in_flight_capacity_bytes", "unpublished_rows", "snapshot_running", "snapshot_rows_total",
}

// live streams updates as Server-Sent Events, until the viewer goes or the server
// stops.
func (p *Page) live(w http.ResponseWriter, r *http.Request) {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		http.Error(w, "This is for the page of this server only.", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return // nobody looks
	}
	from, _, _ := net.SplitHostPort(r.RemoteAddr)
	v, first := p.enter(p.guard.showsEvents(r), from)
	defer p.leave(v)
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold updates back
	w.Header().Set("Connection", "close")     // a displaced viewer keeps no connection
	to := http.NewResponseController(w)
	_ = to.SetReadDeadline(time.Time{}) // the server's deadline is for the request, already read
	send := func(event string, data []byte) bool {
		_ = to.SetWriteDeadline(time.Now().Add(writeTimeout))
		for _, part := range [][]byte{[]byte("event: " + event + "\ndata: "), data, []byte("\n\n")} {
			if _, err := w.Write(part); err != nil { //nolint:gosec // JSON in a text/event-stream: no browser takes it for HTML
				return false
			}
		}
		return to.Flush() == nil
	}
	for ok := send("hello", first); ok; {
		select {
		case data := <-v.updates:
			ok = send("update", data)
		case <-r.Context().Done():
			return
		case <-v.gone:
			return
		case <-p.stopped:
			return
		}
	}
}

// enter adds a viewer and returns the first message. An update follows at once.
func (p *Page) enter(events bool, from string) (*viewer, []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.viewers) >= mostViewers {
		p.displace(from)
	}
	host, _ := os.Hostname()
	h := hello{Version: p.version, Host: host, PID: os.Getpid(), Started: p.started, Peers: p.guard.opts.Peers, Events: events}
	if !events {
		h.EventsWhy = p.guard.why()
	}
	p.entered++
	v := &viewer{events: events, from: from, number: p.entered, updates: make(chan []byte, 2), gone: make(chan struct{})}
	now := time.Now()
	reading := read(p.metrics)
	u := update{At: now, Pipelines: []present{}, Fleet: p.fleet.text}
	h.Pipelines = []past{} // not null without any
	for i, pipeline := range p.shown {
		h.Pipelines = append(h.Pipelines, past{pipeline.Pipeline, &pipeline.past.fine, &pipeline.past.coarse})
		u.Pipelines = append(u.Pipelines, pipeline.present(reading[pipeline.Name], false))
		if events {
			v.stop = append(v.stop, pipeline.Recent.Watch())
			u.Pipelines[i].Events, u.Pipelines[i].Rejected = pipeline.Recent.After(0)
		}
	}
	p.viewers[v] = struct{}{}
	v.updates <- encode(u) // there is room
	return v, encode(h)
}

func (p *Page) leave(v *viewer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(v)
}

// remove takes a viewer out, if there. The caller holds mu.
func (p *Page) remove(v *viewer) {
	if _, there := p.viewers[v]; !there {
		return
	}
	delete(p.viewers, v)
	for _, stop := range v.stop {
		stop()
	}
}

// displace makes room for a viewer from an address: the oldest viewer of the address with
// the most viewers, newcomer included, gives way. So nobody keeps others out by opening many
// pages. Behind a proxy all have the same address. The caller holds mu.
func (p *Page) displace(from string) {
	many := map[string]int{from: 1}
	for v := range p.viewers {
		many[v.from]++
	}
	var least *viewer
	for v := range p.viewers {
		if least == nil || cmp.Or(cmp.Compare(many[least.from], many[v.from]), cmp.Compare(v.number, least.number)) < 0 {
			least = v
		}
	}
	p.remove(least)
	close(least.gone)
}

// send gives each viewer the present: a message for viewers of events, another
// for the others. The caller holds mu.
func (p *Page) send(now time.Time, reading map[string]*reading, charted bool) {
	if len(p.viewers) == 0 {
		return
	}
	u := update{At: now, Pipelines: []present{}}
	if p.fleet.news {
		u.Fleet, p.fleet.news = p.fleet.text, false
	}
	for _, pipeline := range p.shown {
		u.Pipelines = append(u.Pipelines, pipeline.present(reading[pipeline.Name], charted))
	}
	few := encode(u)
	all := few
	for i, pipeline := range p.shown {
		u.Pipelines[i].Events, u.Pipelines[i].Rejected = pipeline.Recent.After(pipeline.sent)
		for _, seen := range [][]delivery.Seen{u.Pipelines[i].Events, u.Pipelines[i].Rejected} {
			if n := len(seen); n > 0 {
				pipeline.sent = max(pipeline.sent, seen[n-1].Number)
				all = nil
			}
		}
	}
	if all == nil {
		all = encode(u)
	}
	for v := range p.viewers {
		data := few
		if v.events {
			data = all
		}
		select {
		case v.updates <- data:
		default: // too slow
		}
	}
}

// present describes the pipeline now. The caller holds the page's mu.
func (s *shown) present(r *reading, charted bool) present {
	out := present{Status: encode(s.Status()), Now: s.past.latest, Charted: charted, Totals: map[string]float64{}}
	if charted {
		out.Coarse = s.past.folded
	}
	if r == nil {
		return out
	}
	out.Topics = r.busiest()
	for _, name := range totals {
		if value, ok := r.values[name]; ok {
			out.Totals[name] = value
		}
	}
	return out
}

// encode returns JSON. All values here can be encoded.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return data
}
