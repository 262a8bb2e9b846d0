package dynamodb

import (
	"sync"
	"time"
)

// DynamoDB has no clock a condition could use. Each answer tells the server's
// time in the header Date, in whole seconds, so an answer bounds the server's
// clock: the time is between Date, and Date plus a second plus the call's
// duration. Bounds of several answers are intersected, narrowed to little more
// than a round trip by answers on both sides of a change of second.
//
// Of the local clock only differences are used, and time.Now's are monotonic: a
// wall clock that is wrong, or set, does no harm.

const (
	// dateResolution is the resolution of the header Date (RFC 9110, section
	// 5.6.7).
	dateResolution = time.Second
	// maxDrift is how much the local clock and the server's may diverge per
	// second: NTP's greatest correction, 500 ppm.
	maxDrift = 500e-6
	// maxAge is how old the last answer may be.
	maxAge = time.Minute
	// maxJump is how far monotonic and wall clock may move apart between two
	// answers. A suspended machine is beyond: the monotonic clock stood still.
	maxJump = 200 * time.Millisecond
)

// instant is what is known of the server's clock: not before earliest and not
// after latest. Leases of others are judged by earliest: none ends too soon.
// Slack makes up for the error of our own times.
type instant struct{ earliest, latest time.Time }

// shift returns the instant d later, or earlier, on a drifting clock.
func (i instant) shift(d time.Duration, drift float64) instant {
	off := time.Duration(drift * float64(d.Abs()))
	return instant{i.earliest.Add(d - off), i.latest.Add(d + off)}
}

// rounded returns the instant in microseconds, as stored.
func (i instant) rounded() instant {
	r := instant{i.earliest.Truncate(time.Microsecond), i.latest.Truncate(time.Microsecond)}
	if r.latest.Before(i.latest) {
		r.latest = r.latest.Add(time.Microsecond)
	}
	return r
}

// reading is a reading of the local clocks: monotonic and wall.
type reading struct {
	elapsed time.Duration
	wall    time.Time
}

// readings returns a function reading a clock such as time.Now.
func readings(now func() time.Time) func() reading {
	start := now()
	return func() reading {
		t := now()
		return reading{elapsed: t.Sub(start), wall: t.Round(0)} // Round strips the monotonic reading
	}
}

// since returns how long ago the earlier reading was, and whether the result is
// reliable. It is not if the wall clock was set in between, or the monotonic
// clock stood still.
func (r reading) since(earlier reading) (d time.Duration, sound bool) {
	d = r.elapsed - earlier.elapsed
	return d, (r.wall.Sub(earlier.wall) - d).Abs() <= maxJump
}

// clock estimates the server's clock. Safe for concurrent use.
type clock struct {
	local      func() reading
	resolution time.Duration // of the server's Date
	drift      float64       // between the two clocks, at most

	mu    sync.Mutex
	known bool
	at    reading // of the last answer, on the local clock
	then  instant // and on the server's
}

// read returns the time of the server's clock; false if too little is known.
func (c *clock) read() (instant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	age, sound := c.local().since(c.at)
	if !c.known || !sound || age > maxAge {
		return instant{}, false
	}
	return c.then.shift(age, c.drift).rounded(), true
}

// observe takes account of an answer with the given Date to a call made at
// sent.
func (c *clock) observe(date time.Time, sent reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	received := c.local()
	took, sound := received.since(sent)
	if !sound {
		return
	}
	seen := instant{date, date.Add(c.resolution + took)}
	if age, sound := received.since(c.at); c.known && sound {
		before := c.then.shift(age, c.drift)
		both := instant{later(seen.earliest, before.earliest), earlier(seen.latest, before.latest)}
		// Otherwise a clock was off: the newest answer counts.
		if !both.latest.Before(both.earliest) {
			seen = both
		}
	}
	c.known, c.at, c.then = true, received, seen
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
