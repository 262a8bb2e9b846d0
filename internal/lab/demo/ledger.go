package demo

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/orders"
)

// change is a transaction of the order service, with the time of its end.
type change struct {
	orders.Change
	at time.Time
}

// event is the record the change must become.
func (c change) event() checker.Event {
	value, _ := json.Marshal(c.Order) // numbers and strings never fail
	return checker.Event{
		ID: c.EventID, Topic: topic, Key: fmt.Sprint(c.Order.ID), Value: canonical(string(value)),
		Headers: []checker.Header{{Key: "id", Value: c.EventID}, {Key: "eventType", Value: c.EventType}},
	}
}

// canonical returns JSON without the spaces and the order of keys of the type
// jsonb; other text is left as is.
func canonical(text string) string {
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return text
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return text
	}
	return string(encoded)
}

// arrival is a record with the time of its arrival.
type arrival struct {
	checker.Record
	at time.Time
}

// ledger has the order service's transactions beside the records that arrived,
// with their times. The checker judges them. ledger does no I/O and has no
// clock.
type ledger struct {
	began, connectorStarted time.Time

	book       checker.Ledger
	records    []checker.Record // all, in the order read
	events     map[string]*event
	early      []early // their change is not known yet
	rolledBack int
	arrived    int       // committed events
	first      time.Time // the first arrival
	latencies  []time.Duration
}

// early is a record with a change not known, or not yet: it may have been handed
// out as foreign, and still be ours.
type early struct {
	arrival
	foreign bool
}

// event is a committed or rolled-back outbox row.
type event struct {
	committed        time.Time
	rolledBack, seen bool
}

func newLedger() *ledger { return &ledger{events: map[string]*event{}} }

// change books a transaction. The service has a single transaction at a time, so
// each begins after the previous end. A record that arrived before the news of
// the commit is booked and returned as well.
func (l *ledger) change(c change) (a arrival, ok bool) {
	tx := checker.Transaction{Events: []checker.Event{c.event()}, Outcome: checker.Committed, Began: l.book.Now()}
	if c.RolledBack {
		tx.Outcome = checker.RolledBack
		l.rolledBack++
	}
	l.book.Add(tx)
	l.events[c.EventID] = &event{committed: c.at, rolledBack: c.RolledBack}
	i := slices.IndexFunc(l.early, func(e early) bool { return e.Header("id") == c.EventID })
	if i < 0 {
		return arrival{}, false
	}
	a = l.early[i].arrival
	l.early = slices.Delete(l.early, i, i+1)
	return a, l.see(a)
}

// arrive books a record and reports whether it is the first of the event. An
// event of an unknown change is kept for change or foreign.
func (l *ledger) arrive(a arrival) bool {
	l.records = append(l.records, a.Record)
	if l.events[a.Header("id")] == nil {
		l.early = append(l.early, early{arrival: a})
		return false
	}
	return l.see(a)
}

// see counts the first record of a committed event.
func (l *ledger) see(a arrival) bool {
	e := l.events[a.Header("id")]
	if e.rolledBack || e.seen {
		return false
	}
	e.seen = true
	l.arrived++
	if l.first.IsZero() {
		l.first = a.at
	}
	l.latencies = append(l.latencies, l.latencyOf(a))
	return true
}

// foreign hands out, once, the records from before the given time of which the
// order service has not told: probably the user's.
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
	return max(0, a.at.Sub(l.events[a.Header("id")].committed))
}

// missing is how many committed events have not arrived.
func (l *ledger) missing() int { return l.book.Committed() - l.arrived }

// report is the content of the summary.
type report struct {
	committed, arrived, duplicates, rolledBack, ghosts int
	keys, faults                                       int
	median, p99                                        time.Duration
	sinceBegin, sinceConnector                         time.Duration // to the first event; 0 without an event
	// err is nil when each committed event arrived, unaltered and in order, and
	// nothing rolled back did. Duplicates are allowed: delivery is at least once.
	err error
}

func (l *ledger) report() report {
	h := checker.History{Transactions: l.book.Transactions(), Records: l.ours()}
	found := checker.Verify(h)
	r := report{
		committed: found.Committed, arrived: found.Delivered, duplicates: found.Repeated, rolledBack: l.rolledBack,
		keys: keys(h.Transactions), median: percentile(l.latencies, 50), p99: percentile(l.latencies, 99), err: found.Err(),
	}
	for _, p := range found.Problems {
		switch p.Kind {
		case checker.Ghost:
			r.ghosts++
		case checker.Lost:
		default:
			r.faults++
		}
	}
	if !l.first.IsZero() {
		r.sinceBegin, r.sinceConnector = l.first.Sub(l.began), l.first.Sub(l.connectorStarted)
	}
	return r
}

// ours returns the records of the order service's events, with their values in
// the form of change.event.
func (l *ledger) ours() []checker.Record {
	var ours []checker.Record
	for _, rec := range l.records {
		if l.events[rec.Header("id")] != nil {
			rec.Value = canonical(rec.Value)
			ours = append(ours, rec)
		}
	}
	return ours
}

// keys counts the keys with committed events.
func keys(txs []checker.Transaction) int {
	seen := map[string]bool{}
	for _, tx := range txs {
		if tx.Outcome == checker.Committed {
			seen[tx.Events[0].Key] = true
		}
	}
	return len(seen)
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
