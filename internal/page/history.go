package page

import (
	"math"
	"strconv"
	"time"
)

const (
	// fineStep and coarseStep are the times between two samples: of the last five
	// minutes, and of the last hour.
	fineStep   = 2 * time.Second
	coarseStep = 10 * time.Second
	fineSize   = int(5 * time.Minute / fineStep)
	coarseSize = int(time.Hour / coarseStep)
)

// history is the charts' data: about 30 kB for each pipeline. Not safe for
// concurrent use.
type history struct {
	fine, coarse ring
	folding      []sample // samples of fine that make up the next of coarse
	latest       sample   // of fine; nothing is known before the first
	folded       *sample  // of coarse, if completed by the latest
}

func newHistory() *history {
	h := &history{fine: ring{size: fineSize}, coarse: ring{size: coarseSize}}
	for c := range columns {
		h.latest.values[c] = nan
	}
	return h
}

// add notes the sample of a fineStep.
func (h *history) add(s sample) {
	h.fine.add(s)
	h.latest, h.folded = s, nil
	if h.folding = append(h.folding, s); len(h.folding) == int(coarseStep/fineStep) {
		folded := fold(h.folding)
		h.coarse.add(folded)
		h.folded = &folded
		h.folding = h.folding[:0]
	}
}

// fold makes a sample of several: the mean of known rates, and the maximum of
// the others, so no peak is hidden.
func fold(some []sample) sample {
	out := sample{at: some[len(some)-1].at}
	for c := range columns {
		sum, most, n := float32(0), float32(math.Inf(-1)), 0
		for _, s := range some {
			if v := s.values[c]; v == v { // not NaN
				sum, most, n = sum+v, max(most, v), n+1
			}
		}
		switch {
		case n == 0:
			out.values[c] = nan
		case c <= walPerSecond:
			out.values[c] = sum / float32(n)
		default:
			out.values[c] = most
		}
	}
	return out
}

// ring holds the last samples.
type ring struct {
	size int
	all  []sample
	next int // of all, once full
}

func (r *ring) add(s sample) {
	if len(r.all) < r.size {
		r.all = append(r.all, s)
		return
	}
	r.all[r.next] = s
	r.next = (r.next + 1) % r.size
}

// MarshalJSON writes the samples, oldest first, as rows of numbers; the time is
// the first.
func (r *ring) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i := range r.all {
		if i > 0 {
			out = append(out, ',')
		}
		out = r.all[(r.next+i)%len(r.all)].append(out)
	}
	return append(out, ']'), nil
}

func (s sample) MarshalJSON() ([]byte, error) { return s.append(nil), nil }

// append writes unknown values, or values without a limit, as null.
func (s sample) append(out []byte) []byte {
	out = append(out, '[')
	out = strconv.AppendFloat(out, s.at, 'f', 0, 64)
	for _, v := range s.values {
		out = append(out, ',')
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			out = append(out, "null"...)
		} else {
			out = strconv.AppendFloat(out, f, 'g', 5, 32)
		}
	}
	return append(out, ']')
}
