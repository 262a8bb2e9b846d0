package page

import (
	"encoding/json"
	"time"
)

// fleetStep is the least time between two looks at the fleet, which ask Kafka.
const fleetStep = 2 * time.Second

// shownFleet is what the page knows of the process's fleet.
type shownFleet struct {
	look    func() any // nil: the process is in none
	at      time.Time  // when the last look began
	looking bool
	text    json.RawMessage
	news    bool // text was not sent yet
}

// Fleet has the page show the process's fleet, as in /status, while a browser looks. Call
// Fleet before Run. look may take seconds: a goroutine of its own calls it, never twice at a
// time, and Run joins the goroutine.
func (p *Page) Fleet(look func() any) { p.fleet.look = look }

// lookAtFleet asks for the fleet, if the time has come. The caller holds mu.
func (p *Page) lookAtFleet(now time.Time) {
	f := &p.fleet
	if f.look == nil || f.looking || len(p.viewers) == 0 || now.Sub(f.at) < fleetStep-100*time.Millisecond {
		return
	}
	f.looking, f.at = true, now
	p.looks.Go(func() {
		text := encode(f.look())
		p.mu.Lock()
		defer p.mu.Unlock()
		f.looking, f.text, f.news = false, text, true
	})
}
