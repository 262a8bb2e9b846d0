package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/quarantine"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

type counts struct{ published []string }

func (c *counts) Published(events []*transform.Event) {
	for _, ev := range events {
		c.published = append(c.published, string(ev.Record.Key)+string(ev.ID))
	}
}
func (*counts) DeadLettered(transform.Reason) {}
func (*counts) Skipped(transform.Reason)      {}
func (*counts) Warned(transform.Warning)      {}

// transactor refuses events by their ids, all of a transaction at once.
type transactor struct {
	refuses []string
	written []string // in the last transaction: key and id, or the topic of the quarantine
}

func (x *transactor) Await(context.Context, []sink.Entry, func() error) error { return nil }

func (x *transactor) Transact(_ context.Context, entries []sink.Entry, _ *kgo.Record) (refused []sink.Refusal, err error) {
	x.written = nil
	for i, e := range entries {
		if e.Event.Record.Topic == "parked" {
			x.written = append(x.written, "parked")
			continue
		}
		if id := string(e.Event.ID); slices.Contains(x.refuses, id) {
			refused = append(refused, sink.Refusal{Index: i, Bad: bad})
		}
		x.written = append(x.written, string(e.Event.Record.Key)+string(e.Event.ID))
	}
	return refused, nil
}

var bad = &transform.BadEvent{Reason: transform.ReasonRejectedByBroker, Err: errors.New("no")}

func items(first int, keys string) (all []Item) {
	for i, key := range keys {
		all = append(all, Item{Event: &transform.Event{ID: fmt.Append(nil, first+i), Record: kgo.Record{Topic: "orders", Key: []byte(string(key))}}})
	}
	return all
}

func parkingIn(limit int) (*Delivery, *counts, *[]transform.Reason) {
	var parked []transform.Reason
	c := &counts{}
	q := &Quarantine{Parked: func(r transform.Reason) { parked = append(parked, r) }, Largest: 1 << 20}
	q.Use(quarantine.NewSet("parked", limit))
	return New(Options{Policy: transform.BadEventQuarantine, Metrics: c, Digest: digest.New(zap.NewNop()), Quarantine: q}), c, &parked
}

// A refused event is parked, with the events of its key behind it, in the same transaction as
// the others; the next batch finds the key parked.
func TestARefusedEventParksItsKey(t *testing.T) {
	d, c, parked := parkingIn(10)
	out := &transactor{refuses: []string{"1"}}
	mark := func(int) (*kgo.Record, error) { return nil, nil }
	batch := items(0, "abab")
	done, err := d.Transact(t.Context(), out, len(batch), func(i int) *Item { return &batch[i] }, mark)
	if want := []string{"a0", "parked", "a2", "parked"}; done != 4 || err != nil || !slices.Equal(out.written, want) {
		t.Errorf("%d, %v, wrote %q, want %q", done, err, out.written, want)
	}
	batch = items(4, "cb")
	if _, err := d.Transact(t.Context(), out, len(batch), func(i int) *Item { return &batch[i] }, mark); err != nil || !slices.Equal(out.written, []string{"c4", "parked"}) {
		t.Errorf("%v, wrote %q", err, out.written)
	}
	again := items(4, "cb") // as after a crash: it is known
	if _, err := d.Transact(t.Context(), out, 1, func(int) *Item { return &again[1] }, mark); err != nil || len(out.written) != 0 {
		t.Errorf("%v, wrote %q", err, out.written)
	}
	if want := []string{"a0", "a2", "c4"}; !slices.Equal(c.published, want) {
		t.Errorf("published %q, want %q", c.published, want)
	}
	if want := []transform.Reason{transform.ReasonRejectedByBroker, Behind, Behind}; !slices.Equal(*parked, want) {
		t.Errorf("parked %q, want %q", *parked, want)
	}
}

// A full quarantine stops the pipeline before the event, or before all joined to it; what is
// before counts.
func TestAFullQuarantineStops(t *testing.T) {
	d, c, _ := parkingIn(1)
	out := &transactor{}
	batch := items(0, "abc")
	batch[0].Bad, batch[2].Bad = bad, bad
	batch[1].Joined = true
	done, err := d.Transact(t.Context(), out, len(batch), func(i int) *Item { return &batch[i] }, func(int) (*kgo.Record, error) { return nil, nil })
	if done != 1 || failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), "the quarantine is full") || len(c.published) != 0 {
		t.Errorf("%d, %v, published %q", done, err, c.published)
	}
	if !slices.Equal(out.written, []string{"parked"}) {
		t.Errorf("wrote %q", out.written)
	}
}

// taker is a sink that takes everything.
type taker struct {
	sink.Sink
	written int
}

func (s *taker) Deliver(_ context.Context, events []*transform.Event, _ sink.Reject) error {
	s.written += len(events)
	return nil
}

// An event too large for the quarantine stops the pipeline, also behind good events: it is not
// taken for parked by the next run.
func TestAnEventTooLargeToParkStops(t *testing.T) {
	d, c, parked := parkingIn(10)
	batch := items(0, "ab")
	batch[1].Bad = bad
	batch[1].Event.Record.Value = make([]byte, d.opts.Quarantine.Largest)
	out := &taker{}
	done, err := d.Deliver(t.Context(), out, len(batch), func(i int) *Item { return &batch[i] })
	if done != 1 || failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), "cannot be parked") {
		t.Errorf("%d, %v", done, err)
	}
	if len(*parked) != 0 || d.opts.Quarantine.Set().Events() != 0 || out.written != 1 || len(c.published) != 1 {
		t.Errorf("parked %q, %d in the set, %d written", *parked, d.opts.Quarantine.Set().Events(), out.written)
	}
}
