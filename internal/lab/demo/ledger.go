package demo

import (
	"fmt"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/orders"
)

// change is a transaction of the order service and when it had ended.
type change struct {
	orders.Change
	at time.Time
}

// arrival is a record as the consumer got it, and when.
type arrival struct {
	topic     string
	partition int32
	offset    int64
	key       string
	value     string
	headers   []header // in the record's order
	at        time.Time
}

type header struct{ key, value string }

// header returns the value of the first header of that name, or "".
func (a *arrival) header(name string) string {
	for _, h := range a.headers {
		if h.key == name {
			return h.value
		}
	}
	return ""
}

// ledger books everything committed against what arrived. ledger does no I/O
// and has no clock.
type ledger struct {
	began, connectorStarted time.Time

	committed, rolledBack int
	arrived, duplicates   int
	first                 time.Time // the first arrival
	keys                  map[string]*keyHistory
	events                map[string]*event // by event id
	early                 []early           // their change is not known yet
	ghosts, disorder      []string          // what must not be: event ids
	latencies             []time.Duration
}

// early is a record whose change is not known, or not yet: then it may have
// been handed out as foreign, and still be ours.
type early struct {
	arrival
	foreign bool
}

// event is one committed or rolled-back outbox row.
type event struct {
	key        string
	ordinal    int // among the committed events of the key
	committed  time.Time
	rolledBack bool
	seen       bool
}

// keyHistory is how far a key's events were committed and arrived.
type keyHistory struct{ committed, arrived int }

func newLedger() *ledger {
	return &ledger{keys: map[string]*keyHistory{}, events: map[string]*event{}}
}

// change books a transaction. If the record had arrived before the news of the
// commit, it books and returns that too.
func (l *ledger) change(c change) (a arrival, ok bool) {
	e := &event{key: fmt.Sprint(c.Order.ID), committed: c.at, rolledBack: c.RolledBack}
	l.events[c.EventID] = e
	if c.RolledBack {
		l.rolledBack++
	} else {
		h := l.history(e.key)
		e.ordinal = h.committed
		h.committed++
		l.committed++
	}
	i := slices.IndexFunc(l.early, func(e early) bool { return e.header("id") == c.EventID })
	if i < 0 {
		return arrival{}, false
	}
	a = l.early[i].arrival
	l.early = slices.Delete(l.early, i, i+1)
	return a, l.arrive(a)
}

// arrive books a record and reports whether it is the first of the event. An
// event of an unknown change is kept for change or foreign.
func (l *ledger) arrive(a arrival) bool {
	e, ok := l.events[a.header("id")]
	switch {
	case !ok:
		l.early = append(l.early, early{arrival: a})
		return false
	case e.rolledBack:
		l.ghosts = append(l.ghosts, a.header("id"))
		return false
	case e.seen:
		l.duplicates++
		return false
	}
	e.seen = true
	h := l.history(e.key)
	if a.key != e.key || h.arrived != e.ordinal {
		l.disorder = append(l.disorder, a.header("id"))
	}
	h.arrived++
	l.arrived++
	if l.first.IsZero() {
		l.first = a.at
	}
	l.latencies = append(l.latencies, l.latencyOf(a))
	return true
}

// foreign hands out, once, the records that arrived before the given time and
// that the order service has not told of: the user wrote them, it seems.
func (l *ledger) foreign(before time.Time) []arrival {
	var out []arrival
	for i := range l.early {
		if e := &l.early[i]; !e.foreign && e.at.Before(before) {
			e.foreign = true
			out = append(out, e.arrival)
		}
	}
	return out
}

// latencyOf is the time from the return of COMMIT to the arrival; 0 when the
// record was faster.
func (l *ledger) latencyOf(a arrival) time.Duration {
	return max(0, a.at.Sub(l.events[a.header("id")].committed))
}

// missing is how many committed events have not arrived.
func (l *ledger) missing() int { return l.committed - l.arrived }

func (l *ledger) history(key string) *keyHistory {
	h := l.keys[key]
	if h == nil {
		h = &keyHistory{}
		l.keys[key] = h
	}
	return h
}

// report is what the summary says.
type report struct {
	committed, arrived, duplicates, rolledBack, ghosts int
	keys, disorder                                     int
	median, p99                                        time.Duration
	sinceBegin, sinceConnector                         time.Duration // to the first event; 0 without one
}

func (l *ledger) report() report {
	r := report{
		committed: l.committed, arrived: l.arrived, duplicates: l.duplicates,
		rolledBack: l.rolledBack, ghosts: len(l.ghosts),
		keys: len(l.keys), disorder: len(l.disorder),
		median: percentile(l.latencies, 50), p99: percentile(l.latencies, 99),
	}
	if !l.first.IsZero() {
		r.sinceBegin, r.sinceConnector = l.first.Sub(l.began), l.first.Sub(l.connectorStarted)
	}
	return r
}

// verdict is nil when each committed event arrived, in order, and nothing
// rolled back did. Duplicates are allowed: delivery is at least once.
func (l *ledger) verdict() error {
	switch {
	case len(l.ghosts) > 0:
		return fmt.Errorf("%d rolled-back events arrived, the first with id %s", len(l.ghosts), l.ghosts[0])
	case len(l.disorder) > 0:
		return fmt.Errorf("%d events arrived under the wrong key or out of order, the first with id %s",
			len(l.disorder), l.disorder[0])
	case l.missing() > 0:
		return fmt.Errorf("%d of %d committed events did not arrive", l.missing(), l.committed)
	}
	return nil
}

// percentile returns the smallest value that p percent of the values do not
// exceed (nearest rank); 0 without values.
func percentile(values []time.Duration, p int) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)*p+99)/100-1]
}
