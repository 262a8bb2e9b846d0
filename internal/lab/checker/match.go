package checker

import (
	"fmt"
	"strconv"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// expectation is an event and its place in the writers' transactions.
type expectation struct {
	*Event
	tx    int // index of the transaction
	index int // within the transaction
}

// delivery is the first record of an event.
type delivery struct {
	expectation
	Record
	position pg.Position
	xid      uint64
	at       int // index of the record
}

// expect indexes the writers' events by id and counts them.
func expect(r *Report, txs []Transaction) map[string]expectation {
	all := map[string]expectation{}
	for t := range txs {
		for i := range txs[t].Events {
			all[txs[t].Events[i].ID] = expectation{&txs[t].Events[i], t, i}
		}
		switch txs[t].Outcome {
		case Committed:
			r.Committed += len(txs[t].Events)
		case Unknown:
			r.Unknown += len(txs[t].Events)
		}
		if txs[t].Outcome == RolledBack {
			for _, ev := range txs[t].Events {
				delete(all, ev.ID)
			}
		}
	}
	return all
}

// match finds each record's event and compares the two. match returns the first
// record of each event, by id.
func (r *Report) match(expected map[string]expectation, records []Record) map[string]delivery {
	first := map[string]delivery{}
	for i, rec := range records {
		id := rec.id()
		want, ok := expected[id]
		if !ok {
			r.problem(Ghost, "%s: event %q was not committed", rec.where(), id)
			continue
		}
		d := delivery{expectation: want, Record: rec, at: i}
		if !r.compare(&d) {
			continue
		}
		before, repeated := first[id]
		if !repeated {
			first[id] = d
			r.Delivered++
			continue
		}
		r.Repeated++
		if before.position != d.position || before.xid != d.xid {
			r.problem(Misplaced, "%s: event %s is at %s and was at %s", rec.where(), id, d.place(), before.place())
		}
		if before.Partition != d.Partition {
			r.problem(Misrouted, "%s: event %s was in partition %d before", rec.where(), id, before.Partition)
		}
	}
	return first
}

// compare reports whether the record is enough of the event to count as its
// delivery, and reads the position.
func (r *Report) compare(d *delivery) bool {
	if d.Record.Topic != d.Event.Topic {
		r.problem(Misrouted, "%s: event %s belongs to topic %s", d.where(), d.ID, d.Event.Topic)
		return false
	}
	if d.Record.Key != d.Event.Key {
		r.problem(Altered, "%s: event %s has key %.100q, want %.100q", d.where(), d.ID, d.Record.Key, d.Event.Key)
		return false
	}
	if d.Record.Value != d.Event.Value {
		r.problem(Altered, "%s: event %s has a value of %d bytes, %.100q, want %d, %.100q", d.where(), d.ID,
			len(d.Record.Value), d.Record.Value, len(d.Event.Value), d.Event.Value)
		return false
	}
	if err := d.readHeaders(r.noPositions); err != nil {
		r.problem(Altered, "%s: event %s: %v", d.where(), d.ID, err)
		return false
	}
	return true
}

// readHeaders checks the event's headers and reads the position's headers, next
// in order, or forbidden.
func (d *delivery) readHeaders(noPosition bool) error {
	have := d.Record.Headers
	for i, want := range d.Event.Headers {
		if i >= len(have) || have[i] != want {
			return fmt.Errorf("header %d should be %s: %.100q; have %.300q", i, want.Key, want.Value, have)
		}
	}
	have = have[len(d.Event.Headers):]
	if noPosition {
		if len(have) > 0 && have[0].Key == "cdc-lsn" {
			return fmt.Errorf("a position; have %.300q", have)
		}
		return nil
	}
	if len(have) < 4 || have[0].Key != "cdc-lsn" || have[1].Key != "cdc-seq" || have[2].Key != "cdc-xid" || have[3].Key != "cdc-time" {
		return fmt.Errorf("no position after the headers of the event; have %.300q", have)
	}
	lsn, err := pglogrepl.ParseLSN(have[0].Value)
	if err != nil {
		return fmt.Errorf("cdc-lsn: %w", err)
	}
	seq, err := strconv.ParseUint(have[1].Value, 10, 32)
	if err != nil {
		return fmt.Errorf("cdc-seq: %w", err)
	}
	d.position = pg.Position{CommitLSN: lsn, Seq: uint32(seq)}
	if d.xid, err = strconv.ParseUint(have[2].Value, 10, 32); err != nil {
		return fmt.Errorf("cdc-xid: %w", err)
	}
	return nil
}

func (r *Record) where() string {
	return fmt.Sprintf("%s[%d]@%d", r.Topic, r.Partition, r.Offset)
}

func (d *delivery) place() string {
	return fmt.Sprintf("%s/%d of transaction %d", d.position.CommitLSN, d.position.Seq, d.xid)
}
