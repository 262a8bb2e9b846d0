package delivery

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/sink"
)

// Transactor writes events in transactions; see sink.Transactions.
type Transactor interface {
	Transact(ctx context.Context, entries []sink.Entry, mark *kgo.Record) ([]sink.Refusal, error)
	Await(ctx context.Context, entries []sink.Entry, end func() error) error
}

// Transact writes n items in a transaction, bad items as errors.on_bad_event says. mark
// makes the record that counts the first done items; the record goes into the
// transaction, too. Transact returns how many items are dealt with, from the front: all,
// or all before a bad event that stops the pipeline and the items joined to it. After
// any other error done is 0, and nobody knows the outcome.
func (d *Delivery) Transact(ctx context.Context, out Transactor, n int, at func(i int) *Item, mark func(done int) (*kgo.Record, error)) (done int, err error) {
	for {
		t := d.gather(n, at)
		if t.done == 0 {
			return 0, t.stop
		}
		record, err := mark(t.done)
		if err != nil {
			return 0, err
		}
		refused, err := out.Transact(ctx, t.entries, record)
		if err != nil {
			return 0, fmt.Errorf("deliver: %w", err)
		}
		if len(refused) == 0 {
			d.committed(&t, at)
			return t.done, t.stop
		}
		for _, r := range refused {
			if t.parking != nil && t.parking.parked[t.entries[r.Index].Event] {
				return 0, d.unparkable(t.entries[r.Index].Event, r.Bad)
			}
			it := at(t.index[r.Index])
			it.Bad, it.refused = r.Bad, true
		}
	}
}

// Await returns once the items' topics exist. See sink.Transactions for end.
func (d *Delivery) Await(ctx context.Context, out Transactor, n int, at func(i int) *Item, end func() error) error {
	return out.Await(ctx, d.gather(n, at).entries, end)
}

// transaction is a run of items as Kafka gets them.
type transaction struct {
	entries []sink.Entry
	index   []int    // the items of entries
	done    int      // items dealt with
	stop    error    // of the next item, if bad and to stop the pipeline; else nil
	parking *parking // nil: bad events are not parked
}

// gather plans a transaction of all items, or of those before a bad event to stop the
// pipeline. Joined items are in the transaction together, or not at all.
func (d *Delivery) gather(n int, at func(i int) *Item) (t transaction) {
	if d.opts.Quarantine != nil {
		t.parking = d.park()
	}
	t.entries, t.index = make([]sink.Entry, 0, n), make([]int, 0, n)
	for t.done < n {
		end := t.done + 1
		for end < n && at(end-1).Joined {
			end++
		}
		if last := at(end - 1); last.Whole && !last.Joined && d.opts.Totals {
			d.total(t.done, end, at)
		}
		wrote, before := len(t.entries), t.parking.mark()
		for i := t.done; i < end; i++ {
			e, err := d.entry(t.parking, at(i))
			if err != nil {
				t.parking.back(before)
				t.entries, t.index, t.stop = t.entries[:wrote], t.index[:wrote], err
				return t
			}
			if e.Event != nil {
				t.entries, t.index = append(t.entries, e), append(t.index, i)
			}
		}
		t.done = end
	}
	return t
}

// entry is an item's entry; without an event, nothing is written. An error stops the pipeline
// at the item.
func (d *Delivery) entry(p *parking, it *Item) (e sink.Entry, err error) {
	switch {
	case p != nil:
		e.Event, err = p.take(it)
	case it.Bad == nil, d.buries(it.Bad):
		e = sink.Entry{Event: it.Event, Bad: it.Bad}
	case !d.skips(it.Bad):
		err = d.stopped(it.Event, it.Bad)
	}
	return e, err
}

// total gives each event of a transaction the number of events not skipped.
func (d *Delivery) total(begin, end int, at func(i int) *Item) {
	skipped := func(it *Item) bool { return it.Bad != nil && d.skips(it.Bad) }
	count := 0
	for i := begin; i < end; i++ {
		if !skipped(at(i)) {
			count++
		}
	}
	text := strconv.AppendInt(nil, int64(count), 10)
	for i := begin; i < end; i++ {
		if it := at(i); !skipped(it) {
			it.Event.SetTotal(text)
		}
	}
}

// committed counts and logs the outcome of a transaction's items.
func (d *Delivery) committed(t *transaction, at func(i int) *Item) {
	if t.parking != nil {
		t.parking.done()
		return
	}
	d.settled(t.done, at)
}

// settled counts and logs the outcome of the first n items, in runs of good items.
func (d *Delivery) settled(n int, at func(i int) *Item) {
	defer func() {
		clear(d.run)
		d.run = d.run[:0]
	}()
	for i := range n {
		it := at(i)
		if it.Bad == nil {
			d.run = append(d.run, it.Event)
			continue
		}
		d.published(d.run)
		d.run = d.run[:0]
		d.rejected(it.Event, it.Bad)
	}
	d.published(d.run)
}
