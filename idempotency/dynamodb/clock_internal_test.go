package dynamodb

import (
	"math/rand/v2"
	"testing"
	"time"
)

var epoch = time.Unix(1_800_000_000, 0)

// world is a server's clock and a local one that is off and runs at another
// speed.
type world struct {
	passed time.Duration
	offset time.Duration
	speed  float64
	// suspended is how long the local monotonic clock stood still.
	suspended time.Duration
}

func (w *world) server() time.Time { return epoch.Add(w.passed) }

func (w *world) local() reading {
	elapsed := time.Duration(float64(w.passed) * w.speed)
	return reading{elapsed: elapsed - w.suspended, wall: epoch.Add(w.offset + elapsed)}
}

// call passes the time of a round trip; the server reads the clock within.
func (w *world) call(c *clock, random *rand.Rand) {
	sent := w.local()
	w.passed += time.Duration(random.Int64N(int64(300 * time.Millisecond)))
	date := w.server().Truncate(time.Second)
	w.passed += time.Duration(random.Int64N(int64(300 * time.Millisecond)))
	c.observe(date, sent)
}

func TestClockEnclosesTheServers(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		w := &world{
			offset: time.Duration(random.Int64N(int64(20*time.Hour))) - 10*time.Hour,
			speed:  1 + (random.Float64()*2-1)*maxDrift*0.999,
		}
		c := clock{local: w.local, resolution: dateResolution, drift: maxDrift}
		if _, ok := c.read(); ok {
			t.Fatal("the time is known before the first answer")
		}
		for step := range 200 {
			w.call(&c, random)
			w.passed += time.Duration(random.Int64N(int64(5 * time.Second)))
			now, ok := c.read()
			if server := w.server(); !ok || server.Before(now.earliest) || server.After(now.latest) {
				t.Fatalf("seed %d, step %d: %s is outside %s to %s", seed, step,
					server.Format(time.StampMicro), now.earliest.Format(time.StampMicro), now.latest.Format(time.StampMicro))
			}
			if width := now.latest.Sub(now.earliest); width > dateResolution+650*time.Millisecond {
				t.Fatalf("seed %d, step %d: known to %s only", seed, step, width)
			}
		}
	}
}

func TestClockNarrows(t *testing.T) {
	w := &world{speed: 1}
	c := clock{local: w.local, resolution: dateResolution, drift: maxDrift}
	for range 200 { // 2 s, with a round trip of 2 ms
		sent := w.local()
		w.passed += time.Millisecond
		date := w.server().Truncate(time.Second)
		w.passed += time.Millisecond
		c.observe(date, sent)
		w.passed += 8 * time.Millisecond
	}
	now, ok := c.read()
	if width := now.latest.Sub(now.earliest); !ok || width > 20*time.Millisecond {
		t.Errorf("known to %s only", width)
	}
}

func TestClockForgets(t *testing.T) {
	for name, pass := range map[string]func(w *world){
		"after a minute":             func(w *world) { w.passed += maxAge + time.Second },
		"when the wall clock is set": func(w *world) { w.offset += time.Hour },
		"when suspended":             func(w *world) { w.passed += 500 * time.Millisecond; w.suspended += 500 * time.Millisecond },
	} {
		w := &world{speed: 1}
		c := clock{local: w.local, drift: maxDrift}
		c.observe(w.server(), w.local()) // exactly, as after many answers
		c.resolution = dateResolution
		if _, ok := c.read(); !ok {
			t.Errorf("%s: not known after an answer", name)
		}
		pass(w)
		if _, ok := c.read(); ok {
			t.Errorf("%s: still trusted", name)
		}
		c.observe(w.server().Truncate(time.Second), w.local())
		now, ok := c.read()
		if server := w.server(); !ok || server.Before(now.earliest) || server.After(now.latest) {
			t.Errorf("%s, then asked: %s is outside %s to %s", name, server, now.earliest, now.latest)
		}
	}
}

// An answer's age is not known then.
func TestClockIgnoresAnswersDuringASuspension(t *testing.T) {
	w := &world{speed: 1}
	c := clock{local: w.local, resolution: dateResolution, drift: maxDrift}
	sent, date := w.local(), w.server()
	w.passed, w.suspended = time.Minute, time.Minute
	c.observe(date, sent)
	if _, ok := c.read(); ok {
		t.Error("the time is known")
	}
}

// An answer contradicting the earlier ones counts more than they.
func TestClockBelievesTheNewestAnswer(t *testing.T) {
	w := &world{speed: 1}
	c := clock{local: w.local, resolution: dateResolution, drift: maxDrift}
	for _, date := range []time.Time{epoch, epoch.Add(time.Hour), epoch.Add(-time.Hour)} {
		c.observe(date, w.local())
		if now, ok := c.read(); !ok || now.earliest != date || now.latest != date.Add(dateResolution) {
			t.Errorf("%s to %s; want a second from %s", now.earliest, now.latest, date)
		}
	}
}
