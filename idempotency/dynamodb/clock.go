package dynamodb

import (
	"sync"
	"time"
)

// DynamoDB has no clock that a condition could use. Each answer tells the
// server's time in its header Date, in whole seconds, so an answer bounds the
// server's clock: it is between Date, and Date plus a second plus the time the
// call took. Bounds of several answers are intersected, which narrows them to
// little more than a round trip once answers have been seen on both sides of a
// change of second.
//
// Of the local clock only differences are used, and time.Now's are monotonic: a
// wall clock that is wrong, or set, does no harm.

const (
	// dateResolution is that of the header Date (RFC 9110, section 5.6.7).
	dateResolution = time.Second
	// maxDrift is how much the local clock and the server's may diverge per
	// second: NTP's greatest correction, 500 ppm.
	maxDrift = 500e-6
	// maxAge is how old the last answer may be.
	maxAge = time.Minute
	// maxJump is how far monotonic and wall clock may move apart between two
	// answers. A machine that was suspended is beyond it: its monotonic clock
	// stood still.
	maxJump = 200 * time.Millisecond
)

// instant is what is known of the server's clock: it is not before earliest and
// not after latest. What others hold is judged by earliest, so that nothing ends
// too soon; how far own times are out is made up for by slack.
type instant struct{ earliest, latest time.Time }

// shift returns the instant d later, or earlier, on a local clock.
func (i instant) shift(d time.Duration) instant {
	drift := time.Duration(maxDrift * float64(d.Abs()))
	return instant{i.earliest.Add(d - drift), i.latest.Add(d + drift)}
}

// clock estimates the server's clock. It is safe for concurrent use.
type clock struct {
	local      func() time.Time
	resolution time.Duration // of the server's Date

	mu   sync.Mutex
	at   time.Time // on the local clock; zero before the first answer
	then instant   // on the server's
}

// read returns what the server's clock shows now; false if too little is known.
func (c *clock) read() (instant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.local()
	if c.at.IsZero() || now.Sub(c.at) > maxAge || jumped(c.at, now) {
		return instant{}, false
	}
	i := c.then.shift(now.Sub(c.at))
	// What is stored has microseconds.
	return instant{i.earliest.Truncate(time.Microsecond), i.latest.Truncate(time.Microsecond).Add(time.Microsecond)}, true
}

// observe takes account of an answer with the given Date to a call that was made
// at sent, on the local clock.
func (c *clock) observe(date, sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	received := c.local()
	if jumped(sent, received) {
		return // how long the call took is not known
	}
	seen := instant{date, date.Add(c.resolution + received.Sub(sent))}
	if !c.at.IsZero() && !jumped(c.at, received) {
		known := c.then.shift(received.Sub(c.at))
		both := instant{later(seen.earliest, known.earliest), earlier(seen.latest, known.latest)}
		// Otherwise one of the clocks was off: the newest answer counts.
		if !both.latest.Before(both.earliest) {
			seen = both
		}
	}
	c.at, c.then = received, seen
}

// jumped tells whether between two readings of the local clock the wall clock
// was set, or the monotonic one stood still.
func jumped(from, to time.Time) bool {
	wall := to.Round(0).Sub(from.Round(0)) // Round strips the monotonic reading
	return (wall - to.Sub(from)).Abs() > maxJump
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
