package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// transactor is a Transactor in memory, and also the Marker.
type transactor struct {
	refuses map[string]bool // ids
	prepare func()          // done while the next transaction is prepared; may be nil
	commits []string        // for each, its records with the total, and the checkpoint
	cp      checkpoint.Checkpoint
}

func (*transactor) Settled() {}
func (*transactor) Recall(context.Context, []checkpoint.Doubtful) ([]checkpoint.Doubtful, error) {
	return nil, nil
}
func (*transactor) Compare(context.Context, checkpoint.Ends) error          { return nil }
func (*transactor) Usable(context.Context) error                            { return nil }
func (*transactor) Ends() checkpoint.Ends                                   { return nil }
func (*transactor) Claim(context.Context) error                             { return nil }
func (*transactor) Next() time.Time                                         { return nextTransaction }
func (*transactor) Await(context.Context, []sink.Entry, func() error) error { return nil }
func (*transactor) Close()                                                  {}

func (x *transactor) Prepare(context.Context) error {
	if x.prepare != nil {
		x.prepare()
	}
	return nil
}

func (x *transactor) Mark(cp checkpoint.Checkpoint) (*kgo.Record, error) {
	x.cp = cp
	return &kgo.Record{}, nil
}

func (x *transactor) Transact(_ context.Context, entries []sink.Entry, _ *kgo.Record) (refused []sink.Refusal, err error) {
	var records []string
	for i, e := range entries {
		name := string(e.Event.ID)
		if e.Bad != nil {
			name = "dead " + name
		} else if x.refuses[name] {
			refused = append(refused, sink.Refusal{Index: i, Bad: errBad})
		}
		if h := e.Event.Record.Headers[len(e.Event.Record.Headers)-1]; h.Key == "cdc-tx-total" {
			name += " of " + string(h.Value)
		}
		records = append(records, name)
	}
	if len(refused) > 0 {
		return refused, nil
	}
	at := x.cp.LSN.String()
	if !x.cp.Cut.IsZero() {
		at = x.cp.Cut.Position().CommitLSN.String() + fmt.Sprintf("/%d", x.cp.Cut.Seq)
	}
	x.commits = append(x.commits, strings.Join(records, ", ")+": "+at)
	return nil, nil
}

// nextTransaction is when a transactor begins the next transaction.
var nextTransaction = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// bounds are an intake and a deliverer with transaction boundaries, and a limit of so
// many events.
type bounds struct {
	*transactor
	in *intake
	d  *deliverer
	m  *counts
}

func newBounds(t *testing.T, b Boundaries, policy string, events int64) *bounds {
	t.Helper()
	in, m := testIntake(t, transform.UpdateWarn)
	probe, _ := testIntake(t, transform.UpdateWarn)
	must.OK(t, probe.accept(t.Context(), insert(10, 0)))
	limit := events * probe.queue.bytes()
	x := &transactor{refuses: map[string]bool{}}
	b.Keep, b.Totals = true, true
	in.bounds = boundaries{Boundaries: b, limit: limit}
	in.queue = newQueue(limit)
	p := Parts{Options: defaultOptions(), Metrics: m, Kafka: delivery.NewDownstream(m), Transactions: &Transactions{Sink: x, Marker: x}}
	p.Boundaries, p.OnBadEvent, p.Linger = in.bounds.Boundaries, policy, 0
	return &bounds{x, in, newDeliverer(p, in.queue, in.tracker, in.checkpointer, in.digest), m}
}

// deliver delivers after each of the messages.
func (b *bounds) deliver(t *testing.T, messages ...*wal.Message) error {
	t.Helper()
	for _, m := range messages {
		must.OK(t, b.in.accept(t.Context(), m))
		if batch := b.in.queue.take(nil); len(batch) > 0 {
			done, err := b.d.deliver(t.Context(), batch)
			if b.in.queue.rests != nextTransaction {
				t.Errorf("the next batch forms until %v, want until the next transaction", b.in.queue.rests)
			}
			b.d.dealtWith(batch[:done])
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bounds) want(t *testing.T, commits ...string) {
	t.Helper()
	if !slices.Equal(b.commits, commits) {
		t.Errorf("committed %q, want %q", b.commits, commits)
	}
}

func TestBoundaries(t *testing.T) {
	for name, c := range map[string]struct {
		messages []*wal.Message
		commits  []string
	}{
		"a transaction goes at its end": {
			[]*wal.Message{insert(10, 0), insert(10, 1), commit(15)}, []string{"10/0 of 2, 10/1 of 2: 0/F"}},
		"changes of other tables do not count": {
			[]*wal.Message{insert(10, 0), row(wal.Insert, audit, 10, 1), row(wal.Delete, outboxRelation, 10, 2), insert(10, 3), commit(15)},
			[]string{"10/0 of 2, 10/3 of 2: 0/F"}},
		"one without an end is not delivered": {
			[]*wal.Message{insert(10, 0), commit(15), insert(20, 0), insert(20, 1)}, []string{"10/0 of 1: 0/F"}},
		"a row and a message, which has no key": {
			[]*wal.Message{insert(10, 0), told(10, 1), commit(15)}, []string{"10/0 of 2, dead told 10/1 of 2: 0/F"}},
		"a message of no transaction": {
			[]*wal.Message{loose(7), insert(10, 0), commit(15)}, []string{"dead loose 7 of 1: 0/7", "10/0 of 1: 0/F"}},
		"one that a new session brings to its end": {
			[]*wal.Message{insert(10, 0), commit(15), insert(20, 0), insert(20, 1), again(15), insert(20, 0), insert(20, 1), insert(20, 2), commit(25)},
			[]string{"10/0 of 1: 0/F", "20/0 of 3, 20/1 of 3, 20/2 of 3: 0/19"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBounds(t, Boundaries{}, transform.BadEventDeadLetter, 100)
			for _, m := range c.messages {
				if m.Kind == 0 {
					accepted(t, b.in, m)
					continue
				}
				must.OK(t, b.deliver(t, m))
			}
			b.want(t, c.commits...)
		})
	}
}

// A refused event is a part of its transaction all the same.
func TestBoundariesWithABadEvent(t *testing.T) {
	for policy, want := range map[string][]string{
		transform.BadEventStop:       {"10/0 of 1: 0/F"},
		transform.BadEventDeadLetter: {"10/0 of 1: 0/F", "20/0 of 3, dead 20/1 of 3, 20/2 of 3: 0/19", "30/0 of 1: 0/23"},
		transform.BadEventSkip:       {"10/0 of 1: 0/F", "20/0 of 2, 20/2 of 2: 0/19", "30/0 of 1: 0/23"},
	} {
		t.Run(policy, func(t *testing.T) {
			b := newBounds(t, Boundaries{}, policy, 100)
			b.refuses["20/1"] = true
			err := b.deliver(t, insert(10, 0), commit(15), insert(20, 0), insert(20, 1), insert(20, 2), commit(25), insert(30, 0), commit(35))
			if stops := policy == transform.BadEventStop; stops != (failure.ClassOf(err) == failure.Config) || !stops && err != nil {
				t.Errorf("deliver = %v", err)
			}
			b.want(t, want...)
		})
	}
}

func TestTransactionOfExactlyTheBoundIsKept(t *testing.T) {
	b := newBounds(t, Boundaries{}, transform.BadEventStop, 3)
	must.OK(t, b.deliver(t, insert(10, 0), insert(10, 1), insert(10, 2), commit(15)))
	b.want(t, "10/0 of 3, 10/1 of 3, 10/2 of 3: 0/F")
}

func TestOversizedTransactionStops(t *testing.T) {
	b := newBounds(t, Boundaries{}, transform.BadEventStop, 3)
	must.OK(t, b.deliver(t, insert(5, 0), commit(7), insert(10, 0), insert(10, 1), insert(10, 2), insert(10, 3), insert(10, 4)))
	err := b.in.accept(t.Context(), commit(15))
	b.want(t, "5/0 of 1: 0/7")
	size := b.in.bounds.limit / 3 * 5
	for _, want := range []string{"0/A", "5 events", fmt.Sprint(size, " bytes"), fmt.Sprint(b.in.bounds.limit)} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("accept = %v, without %q", err, want)
		}
	}
	for _, want := range []string{fmt.Sprint("max_buffered_bytes to ", size+size/8), "on_oversized_transaction: split", "--skip-to 0/A"} {
		if failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), want) {
			t.Errorf("class %d, remedy %q, without %q", failure.ClassOf(err), failure.RemedyOf(err), want)
		}
	}
}

func TestOversizedTransactionIsSplit(t *testing.T) {
	b := newBounds(t, Boundaries{Split: true}, transform.BadEventStop, 3)
	must.OK(t, b.deliver(t, insert(5, 0), commit(7), insert(10, 0), insert(10, 1), insert(10, 2)))
	b.want(t, "5/0 of 1: 0/7")
	parted := make(chan error, 1)
	go func() { parted <- b.in.accept(t.Context(), insert(10, 3)) }() // waits for room
	batch := must.Get(b.in.queue.fetch(t.Context(), 0, nil))(t)
	done, err := b.d.deliver(t.Context(), batch)
	b.d.dealtWith(batch[:done])
	must.OK(t, errors.Join(err, <-parted))
	must.OK(t, b.deliver(t, commit(15), insert(20, 0), commit(25)))
	b.want(t, "5/0 of 1: 0/7", "10/0, 10/1, 10/2: 0/A/2", "10/3: 0/F", "20/0 of 1: 0/19")
	if b.m.split != 1 {
		t.Errorf("%d counted as split, want 1", b.m.split)
	}
}

// A transaction published in part has no total, however small the rest.
func TestRestOfAPartedTransaction(t *testing.T) {
	b := newBounds(t, Boundaries{}, transform.BadEventStop, 100)
	must.OK(t, b.in.tracker.Keepalive(15))
	past := checkpoint.Past{Slot: 5, Start: 10, Known: 15, Since: checkpoint.Landmark{Commit: 10, XID: 10}}
	past.Cut = checkpoint.Cut{Landmark: checkpoint.Landmark{Commit: 20, XID: 20}, Seq: 1}
	must.OK(t, b.in.resume(past))
	must.OK(t, b.deliver(t, insert(10, 0), commit(15), insert(20, 0), insert(20, 1), insert(20, 2), commit(25), insert(30, 0), commit(35)))
	b.want(t, "20/2: 0/14/2", "30/0 of 1: 0/23")
}

// A passed over transaction may have any size.
func TestOversizedTransactionIsPassedOver(t *testing.T) {
	b := newBounds(t, Boundaries{}, transform.BadEventStop, 3)
	must.OK(t, b.in.resume(checkpoint.Past{Skip: checkpoint.Landmark{Commit: 10, XID: 10}}))
	must.OK(t, b.deliver(t, insert(10, 0), insert(10, 1), insert(10, 2), insert(10, 3), commit(15), insert(20, 0), commit(25)))
	if last := b.commits[len(b.commits)-1]; last != "20/0 of 1: 0/19" || strings.Contains(strings.Join(b.commits, ""), "10/") {
		t.Errorf("committed %q", b.commits)
	}
}

// Another instance has published the held events.
func TestHeldTransactionThatTheCheckpointHasPassed(t *testing.T) {
	b := newBounds(t, Boundaries{}, transform.BadEventStop, 100)
	must.OK(t, b.deliver(t, insert(10, 0), commit(15), insert(20, 0)))
	past := checkpoint.Past{Slot: 5, Start: 30, Known: pg.LSN(35), Since: checkpoint.Landmark{Commit: 30, XID: 30}}
	if err := b.in.resume(past); !errors.Is(err, ErrTakenOver) {
		t.Errorf("resume = %v, want ErrTakenOver", err)
	}
}

// A session with PostgreSQL begins again while the deliverer is in a transaction. The
// session has loaded the checkpoint before, and saves after the end of the transaction,
// before the deliverer has told the tracker.
func TestBeginDoesNotGoBackBehindTheLastTransaction(t *testing.T) {
	b := newBounds(t, Boundaries{}, transform.BadEventStop, 100)
	k := b.in.checkpointer
	loaded := checkpoint.Checkpoint{LSN: 5, Epoch: 1}
	must.OK(t, b.in.tracker.Keepalive(5))
	must.OK(t, k.begin(t.Context(), loaded))
	must.OK(t, b.in.accept(t.Context(), insert(10, 0)))
	must.OK(t, b.in.accept(t.Context(), commit(15)))
	batch := b.in.queue.take(nil)
	done := must.Get(b.d.deliver(t.Context(), batch))(t)
	published := k.last()
	loaded.Epoch = 2
	must.OK(t, k.begin(t.Context(), loaded))
	if got := k.store.(*fakeStore).stored(); got.LSN != published.LSN || got.Landmark != published.Landmark || got.Epoch != 2 {
		t.Errorf("the checkpoint of epoch %d is at %s, %+v; want epoch 2 at %s, %+v, as in the last transaction",
			got.Epoch, got.LSN, got.Landmark, published.LSN, published.Landmark)
	}
	b.d.dealtWith(batch[:done])
}

func TestWhatComesWhileATransactionIsPreparedIsInIt(t *testing.T) {
	b := newBounds(t, Boundaries{}, "stop", 10)
	accept := func(messages ...*wal.Message) {
		for _, m := range messages {
			must.OK(t, b.in.accept(t.Context(), m))
		}
	}
	accept(insert(10, 0), commit(10))
	b.in.queue.offer()
	b.prepare = func() {
		accept(insert(20, 0), commit(20))
		b.in.queue.close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must.OK(t, b.d.run(ctx))
	b.want(t, "10/0 of 1, 20/0 of 1: 0/14")
}
