package sink

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
)

// half is a transaction of two events and the mark, each to a partition of its own.
type half struct {
	*testing.T
	broker *kafkatest.Broker
}

func (h half) transactions() *Transactions {
	h.Helper()
	cfg := *DefaultOptions()
	cfg.Brokers = h.broker.Brokers
	x := must.Get(NewTransactions(cfg, "tx"))(h.T)
	h.Cleanup(x.Close)
	return x
}

func entriesWith(text string) []Entry {
	entries := make([]Entry, 2)
	for p := range entries {
		ev := event("t", "a", int32(p), p)
		ev.Record.Value = []byte(text)
		entries[p].Event = ev
	}
	return entries
}

func (h half) commit(x *Transactions, text string) {
	h.Helper()
	if refused, err := x.Transact(deadline(h.T), entriesWith(text), mark(text)); err != nil || len(refused) > 0 {
		h.Fatal(refused, err)
	}
}

// leaveOpen writes all of a transaction, and does not end it.
func (h half) leaveOpen(x *Transactions, text string) {
	h.Helper()
	rounds, refused, err := x.plan(deadline(h.T), entriesWith(text))
	if err != nil || len(refused) > 0 {
		h.Fatal(refused, err)
	}
	if failed, err := x.write(deadline(h.T), withMark(rounds, mark(text))); err != nil || len(failed) > 0 {
		h.Fatal(failed, err)
	}
}

// lastMarker returns the last marker of a partition, which has so many records and
// markers.
func (h half) lastMarker(topic string, n int) *kgo.Record {
	h.Helper()
	client := h.broker.Client(h.T, kgo.ConsumeTopics(topic), kgo.KeepControlRecords())
	defer client.Close()
	var all []*kgo.Record
	for len(all) < n {
		fetches := client.PollFetches(deadline(h.T))
		must.OK(h.T, fetches.Err())
		all = append(all, fetches.Records()...)
	}
	all = slices.DeleteFunc(all, func(r *kgo.Record) bool { return !r.Attrs.IsControl() })
	return all[len(all)-1]
}

// committed are the texts in each partition up to the transaction "last".
func (h half) committed() map[string][]string {
	h.Helper()
	in := map[string][]string{}
	ends := 0
	for _, r := range h.broker.Consume(h.T, []string{"t", marks}, func(records []*kgo.Record) bool {
		ends = 0
		for _, r := range records {
			if string(r.Value) == "last" {
				ends++
			}
		}
		return ends == 3
	}) {
		at := fmt.Sprintf("%s %d", r.Topic, r.Partition)
		in[at] = append(in[at], string(r.Value))
	}
	return in
}

// A coordinator whose decision nobody else has ends a half of a transaction. If the
// mark counts, all must count that it counts.
func TestHalfOfATransactionIsFinished(t *testing.T) {
	markOnly := func(topic string, _ int32) bool { return topic == marks }
	for name, c := range map[string]struct {
		version  int16
		ended    func(topic string, partition int32) bool
		commit   bool
		finished bool
	}{
		"nothing ended":              {version: 2},
		"nothing ended by version 1": {version: 1},
		"the mark committed":         {version: 2, ended: markOnly, commit: true, finished: true},
		"the mark and more":          {version: 2, ended: func(_ string, partition int32) bool { return partition == 0 }, commit: true, finished: true},
		"all committed":              {version: 2, ended: func(string, int32) bool { return true }, commit: true, finished: true},
		"the mark and more aborted":  {version: 2, ended: func(_ string, partition int32) bool { return partition == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			h := half{t, kafkatest.Start(t, kafkatest.Apache())}
			h.broker.SetFeature(t, "transaction.version", c.version)
			h.broker.CreateTopic(t, "t", 2, nil)
			h.broker.CreateTopic(t, marks, 1, nil)
			x := h.transactions()
			must.OK(t, x.Claim(deadline(t)))
			h.commit(x, "first")
			h.leaveOpen(x, "half")
			n := 3 // the first mark, its marker, the second mark
			if c.ended != nil {
				h.broker.EndHalf(t, "tx", c.commit, c.ended)
				n++
			}

			x = h.transactions()
			finished, err := x.Finish(deadline(t), func(context.Context) (*kgo.Record, error) { return h.lastMarker(marks, n), nil })
			if err != nil || finished != c.finished {
				t.Errorf("finished: %t, %v; want %t", finished, err, c.finished)
			}
			must.OK(t, x.Claim(deadline(t)))
			h.commit(x, "last")
			want := []string{"first", "last"}
			if c.finished {
				want = []string{"first", "half", "last"}
			}
			for at, texts := range h.committed() {
				if !slices.Equal(texts, want) {
					t.Errorf("%s has %q, want %q", at, texts, want)
				}
			}
		})
	}
}

func TestThereIsNothingToFinish(t *testing.T) {
	h := half{t, kafkatest.Start(t, kafkatest.Apache())}
	for range 2 { // before the id is known to brokers, and after
		x := h.transactions()
		finished, err := x.Finish(deadline(t), func(context.Context) (*kgo.Record, error) {
			t.Error("looked for a marker though no transaction is open")
			return nil, nil
		})
		if finished || err != nil {
			t.Errorf("%t, %v", finished, err)
		}
		must.OK(t, x.Claim(deadline(t)))
	}
}
