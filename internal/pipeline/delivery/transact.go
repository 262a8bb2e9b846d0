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
	if d.opts.Quarantine != nil {
		return d.transactParking(ctx, out, n, at, mark)
	}
	for {
		entries, index, done, stop := d.entries(n, at)
		if done == 0 {
			return 0, stop
		}
		record, err := mark(done)
		if err != nil {
			return 0, err
		}
		refused, err := out.Transact(ctx, entries, record)
		if err != nil {
			return 0, fmt.Errorf("deliver: %w", err)
		}
		if len(refused) == 0 {
			d.settled(done, at)
			return done, stop
		}
		for _, r := range refused {
			at(index[r.Index]).Bad = r.Bad
		}
	}
}

// Await returns once the items' topics exist. See sink.Transactions for end.
func (d *Delivery) Await(ctx context.Context, out Transactor, n int, at func(i int) *Item, end func() error) error {
	if d.opts.Quarantine != nil {
		p, _, _, _ := d.gather(n, at)
		return out.Await(ctx, p.entries(), end)
	}
	entries, _, _, _ := d.entries(n, at)
	return out.Await(ctx, entries, end)
}

// entries are the items to be written, with their indexes: all, or those before a bad
// event that stops the pipeline, with the reason.
func (d *Delivery) entries(n int, at func(i int) *Item) (entries []sink.Entry, index []int, done int, stop error) {
	begin := 0 // of the joined entries
	for i := range n {
		it := at(i)
		switch {
		case it.Bad == nil, d.buries(it.Bad):
			entries, index = append(entries, sink.Entry{Event: it.Event, Bad: it.Bad}), append(index, i)
		case !d.skips(it.Bad):
			return entries[:begin], index[:begin], done, d.stopped(it.Event, it.Bad)
		}
		if it.Joined {
			continue
		}
		if it.Whole && d.opts.Totals {
			total(entries[begin:])
		}
		begin, done = len(entries), i+1
	}
	return entries, index, n, nil
}

// total gives each record of a transaction the number of records.
func total(entries []sink.Entry) {
	text := strconv.AppendInt(nil, int64(len(entries)), 10)
	for _, e := range entries {
		e.Event.SetTotal(text)
	}
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
