package e2e

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
)

const (
	// repeatWindow is the time before a kill -9 whose events, committed or made
	// readable at the broker then, may be repeated. The rest is confirmed. On an
	// idle machine the checkpoint's interval, a tenth of the window, would do.
	repeatWindow = time.Second
	// firstLife is the first process's time to deliver, with too few events for
	// their bytes to be a reason to save: a process saving too seldom has much
	// more to repeat then.
	firstLife = 3 * repeatWindow
	slowPace  = 400 * time.Millisecond

	// settling is how long the topics must not grow after a kill: the dead
	// process's records are still on the way through sockets, proxy and broker.
	settling = 500 * time.Millisecond
	// settlingLooks is the number of looks in a row that must show no growth:
	// while we were suspended, proxy and broker were, too.
	settlingLooks = 20
)

// TestE2EKilled kills the connector at random moments under load (failure mode 37).
func TestE2EKilled(t *testing.T) { killed(t, toTable) }

func killed(t *testing.T, ways ways) {
	kills := 10
	if testing.Short() {
		kills = 4
	}
	w := newWorld(t, options{ways: ways})
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 100))
	c := w.start()
	slow := w.write(s+1, slowPace, 0)
	await.Until(t, "a first event", func() bool { c.running(); return len(w.reader.Records()) > 0 })
	slow.during(firstLife, func() bool { return true })
	deaths := []death{w.kill(c)}
	slow.stop()
	c = startConnector(t, w.config)

	load := w.write(s, 5*time.Millisecond, 0)
	for range number(t, killsEnv, kills) {
		load.await(20 + random.IntN(1500)) // also before the connector is ready
		deaths = append(deaths, w.kill(c))
		c = startConnector(t, w.config)
	}
	h, _ := w.finish(load, c)
	w.wantDrained(h)
	judge(t, deaths, h)
}

// death is a kill -9.
type death struct {
	at   time.Time
	ends map[string][]int64 // of the topics afterwards; repetitions lie beyond
}

// kill kills the connector and waits until the broker has dealt with the dead
// process's requests.
func (w *world) kill(c *connector) death {
	w.t.Helper()
	c.running()
	d := death{at: time.Now()}
	c.kill()
	var since time.Time
	same := 0
	await.Until(w.t, "end of what was in flight", func() bool {
		ends := w.ends()
		if !maps.EqualFunc(d.ends, ends, slices.Equal[[]int64]) {
			d.ends, since, same = ends, time.Now(), 0
			return false
		}
		same++
		return same >= settlingLooks && time.Since(since) >= settling
	})
	return d
}

// beyond tells whether the record was written after the death.
func (d *death) beyond(r checker.Record) bool { return r.Offset >= d.ends[r.Topic][r.Partition] }

// judge compares each repetition with its cause: the first death after the
// repeated record.
func judge(t *testing.T, deaths []death, h checker.History) {
	t.Helper()
	repeated := make([]int, len(deaths))
	oldest := make([]time.Duration, len(deaths)) // at the death
	for _, rep := range checker.Repetitions(h.Records) {
		n := slices.IndexFunc(deaths, func(d death) bool { return !d.beyond(rep.Before) })
		if n < 0 || !deaths[n].beyond(rep.Again) {
			t.Errorf("%s[%d]@%d came again without a kill", rep.Again.Topic, rep.Again.Partition, rep.Again.Offset)
			continue
		}
		at := deaths[n].at
		repeated[n]++
		oldest[n] = max(oldest[n], min(at.Sub(rep.Before.Timestamp), at.Sub(readable(rep.Before, h.Samples))))
	}
	for n, d := range deaths {
		stall := starvation(d.at, h.Samples)
		t.Logf("kill %d repeated %d events, the oldest published %s before it (the machine stalled for %s)",
			n, repeated[n], oldest[n].Round(time.Millisecond), stall.Round(time.Millisecond))
		if limit := repeatWindow + stall; oldest[n] > limit {
			t.Errorf("kill %d repeated an event published %s before it; want at most %s", n, oldest[n], limit)
		}
	}
	slices.Sort(repeated)
	t.Logf("repeated by a kill: median %d, most %d", repeated[len(repeated)/2], repeated[len(repeated)-1])
}

// readable is a time before the record was readable: the last look at the topics
// without the record.
func readable(r checker.Record, samples []checker.Sample) time.Time {
	n, _ := slices.BinarySearchFunc(samples, r, func(s checker.Sample, r checker.Record) int {
		return cmp.Compare(s.Ends[r.Topic][r.Partition], r.Offset+1)
	})
	if n == 0 {
		return time.Time{}
	}
	return samples[n-1].At
}

// starvation is the longest time between two looks in the second before the
// moment: everything else on the machine may have been as late.
func starvation(at time.Time, samples []checker.Sample) time.Duration {
	var longest time.Duration
	for i := 1; i < len(samples); i++ {
		if s := samples[i]; s.At.After(at.Add(-time.Second)) && samples[i-1].At.Before(at) {
			longest = max(longest, s.At.Sub(samples[i-1].At))
		}
	}
	return longest
}

// delay is by how much the looks since the moment came late, in all: the time
// the machine took from everything else, too.
func delay(since time.Time, samples []checker.Sample) (late time.Duration) {
	for i := 1; i < len(samples); i++ {
		if gap := samples[i].At.Sub(samples[i-1].At); samples[i].At.After(since) {
			late += max(0, min(gap, samples[i].At.Sub(since))-sampling)
		}
	}
	return late
}
