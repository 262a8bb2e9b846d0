package demo

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/orders"
)

// epoch is when the histories below begin.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

func committed(ms int, id string, order int64) change {
	return change{at: at(ms), Change: orders.Change{EventID: id, Order: orders.Order{ID: order}}}
}

func rolledBack(ms int, id string, order int64) change {
	c := committed(ms, id, order)
	c.RolledBack = true
	return c
}

// record is the record of an event of the key, at a position made from the id's
// first letter.
func record(ms int, id, key string) arrival {
	e := committed(0, id, 0).event()
	rec := checker.Record{Topic: topic, Key: key, Value: strings.Replace(e.Value, `"id":0`, `"id": `+key, 1), Headers: e.Headers}
	for _, h := range [][2]string{{"cdc-lsn", fmt.Sprintf("0/%X", id[0])}, {"cdc-seq", "0"}, {"cdc-xid", "7"}, {"cdc-time", "1"}} {
		rec.Headers = append(rec.Headers, checker.Header{Key: h[0], Value: h[1]})
	}
	return arrival{rec, at(ms)}
}

func altered(ms int, id, key string) arrival {
	a := record(ms, id, key)
	a.Value = "{}"
	return a
}

func TestLedger(t *testing.T) {
	type history []any // of change and arrival
	for _, tt := range []struct {
		name    string
		history history
		verdict string // a part of it; empty: all is well
		want    report
	}{
		{"all arrive", history{committed(0, "a", 1), record(3, "a", "1"), committed(4, "b", 1), record(5, "b", "1")}, "",
			report{committed: 2, arrived: 2, keys: 1, median: time.Millisecond, p99: 3 * time.Millisecond}},
		{"the record overtakes the news of its commit", history{record(0, "a", "1"), committed(1, "a", 1)}, "",
			report{committed: 1, arrived: 1, keys: 1}},
		{"keys may overtake each other", history{committed(0, "a", 1), committed(0, "b", 2), record(0, "b", "2"), record(0, "a", "1")}, "",
			report{committed: 2, arrived: 2, keys: 2}},
		{"a duplicate is counted and allowed", history{committed(0, "a", 1), record(0, "a", "1"), record(0, "a", "1")}, "",
			report{committed: 1, arrived: 1, duplicates: 1, keys: 1}},
		{"nothing rolled back arrives", history{rolledBack(0, "a", 1)}, "",
			report{rolledBack: 1}},
		{"one is missing", history{committed(0, "a", 1)}, "lost: event a ",
			report{committed: 1, keys: 1}},
		{"a rolled-back event arrives", history{rolledBack(0, "a", 1), record(0, "a", "1")}, "ghost: outbox.event.order[0]@0: event \"a\" was not committed",
			report{rolledBack: 1, ghosts: 1}},
		{"the events of a key change places", history{committed(0, "a", 1), committed(0, "b", 1), record(0, "b", "1"), record(0, "a", "1")}, "reordered: ",
			report{committed: 2, arrived: 2, keys: 1, faults: 2}},
		{"they change places before the news of their commits", history{record(0, "b", "1"), record(0, "a", "1"), committed(1, "a", 1), committed(1, "b", 1)}, "reordered: ",
			report{committed: 2, arrived: 2, keys: 1, faults: 2}},
		{"an event arrives altered", history{committed(0, "a", 1), altered(0, "a", "1")}, "altered: ",
			report{committed: 1, keys: 1, faults: 1}},
		{"an event has another one's key", history{committed(0, "a", 1), record(0, "a", "2")}, "altered: ",
			report{committed: 1, keys: 1, faults: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLedger()
			l.began, l.connectorStarted = epoch, epoch
			for _, step := range tt.history {
				switch step := step.(type) {
				case change:
					l.change(step)
				case arrival:
					l.arrive(step)
				}
			}
			got := l.report()
			err := got.err
			got.sinceBegin, got.sinceConnector, got.err = 0, 0, nil
			if got != tt.want {
				t.Errorf("report\n got %+v\nwant %+v", got, tt.want)
			}
			verdict := ""
			if err != nil {
				verdict = err.Error()
			}
			if (tt.verdict == "") != (verdict == "") || !strings.Contains(verdict, tt.verdict) {
				t.Errorf("verdict = %q, want %q", verdict, tt.verdict)
			}
		})
	}
}

func TestForeignRecordsAreHandedOutOnceTheyAreOld(t *testing.T) {
	l := newLedger()
	l.arrive(record(0, "mine", "1"))
	l.arrive(record(10, "late", "1"))
	if got := l.foreign(at(5)); len(got) != 1 || got[0].Header("id") != "mine" {
		t.Errorf("foreign = %v, want the record mine", got)
	}
	if got := l.foreign(at(5)); len(got) != 0 {
		t.Errorf("foreign again = %v, want none", got)
	}
	if _, ok := l.change(committed(11, "late", 1)); !ok {
		t.Error("the younger record was not kept for its change")
	}
}

// The order service may be told of the commit late: a machine that stalls.
func TestRecordTakenForForeignIsBookedOnceItsChangeIsKnown(t *testing.T) {
	l := newLedger()
	l.arrive(record(0, "mine", "1"))
	l.foreign(at(5))
	if _, ok := l.change(committed(6, "mine", 1)); !ok || l.missing() != 0 {
		t.Errorf("%d events are missing, want none", l.missing())
	}
}

func TestPercentile(t *testing.T) {
	values := []time.Duration{4, 1, 3, 2}
	for p, want := range map[int]time.Duration{1: 1, 50: 2, 75: 3, 99: 4, 100: 4} {
		if got := percentile(values, p); got != want {
			t.Errorf("percentile %d = %d, want %d", p, got, want)
		}
	}
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("percentile of nothing = %d, want 0", got)
	}
}
