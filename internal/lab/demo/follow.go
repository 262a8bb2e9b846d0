package demo

import (
	"context"
	"time"
)

// foreignAfter is an arrival's longest wait for the news of its commit before
// being shown as the user's own: the record of a fast connector overtakes the
// return of COMMIT.
const foreignAfter = 200 * time.Millisecond

// follow shows and books what happens until the demo is over: all events
// arrived, the user left, an actor failed or nothing comes any more.
func (r *run) follow(ctx, failed context.Context, stopWriting context.CancelFunc) {
	tick := time.NewTicker(foreignAfter / 2)
	defer tick.Stop()
	leaving := ctx.Done()
	deadline := time.Now().Add(arrivalTimeout)
	for {
		select {
		case c := <-r.changes:
			r.changed(c)
			deadline = time.Now().Add(arrivalTimeout)
		case a := <-r.arrivals:
			r.arrived(a)
			deadline = time.Now().Add(arrivalTimeout)
		case now := <-tick.C:
			for _, a := range r.ledger.foreign(now.Add(-foreignAfter)) {
				r.show.foreignRecord(a)
			}
			if now.After(deadline) && r.ledger.missing() > 0 {
				return
			}
		case <-leaving:
			leaving = nil
			stopWriting()
			deadline = time.Now().Add(leaveTimeout)
		case <-failed.Done():
			return
		}
		if r.over(leaving == nil) {
			return
		}
	}
}

// over reports whether nothing more is to come.
func (r *run) over(leaving bool) bool {
	if r.ledger.missing() > 0 {
		return false
	}
	return leaving || r.Events > 0 && r.ledger.book.Committed() >= r.Events
}

func (r *run) changed(c change) {
	record, ok := r.ledger.change(c)
	if r.inSample() {
		r.sample[c.EventID] = true
		r.show.change(c)
	}
	if ok {
		r.showRecord(record)
	}
}

func (r *run) arrived(a arrival) {
	if r.ledger.arrive(a) {
		r.showRecord(a)
	}
}

func (r *run) showRecord(a arrival) {
	switch latency := r.ledger.latencyOf(a); {
	case r.ledger.arrived == 1:
		r.show.firstRecord(a, latency)
	case r.sample[a.Header("id")]:
		r.show.record(a, latency)
	}
}

// inSample reports whether to show the newest change: every change or, of a long
// run, some at first and then every so many.
func (r *run) inSample() bool {
	if r.Events <= maxShown {
		return true
	}
	n := r.ledger.book.Committed()
	return n <= maxShown/10 || n%(2*r.Events/maxShown) == 0
}
