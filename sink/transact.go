package sink

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// endPatience bounds the wait for the answer to EndTxn, beyond the timeout. Brokers
// may end the transaction later: the next claim makes them.
const endPatience = 2 * time.Second

// breath is the least time between two transactions: meanwhile brokers write the markers of
// the last transaction, and events gather for the next. Without the wait, transactions would
// be smaller and cost more, and events would not be there earlier.
const breath = 4 * time.Millisecond

// unaided replaces breath where enlist does nothing. Brokers then wait for the markers, and
// ask about them every 20 ms; a transaction a few milliseconds later does not wait.
const unaided = 6 * time.Millisecond

// Next is the earliest time of the next transaction. Events until then should share it.
func (x *Transactions) Next() time.Time {
	if x.epochs.differ.Load() {
		return x.ended.Add(breath)
	}
	return x.ended.Add(unaided)
}

// Prepare begins the next transaction before its events are known, and enlists the likely
// partitions. Events that come meanwhile can be in the transaction. Transact must follow
// soon.
func (x *Transactions) Prepare(ctx context.Context) error {
	leave, err := x.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	likely := x.recent.next(time.Now())
	if len(likely) == 0 || !x.epochs.differ.Load() {
		return nil
	}
	ctx, release := x.k.connections.guard(ctx)
	defer release()
	if err := x.begin(ctx); err != nil {
		return x.k.stop(ctx, err)
	}
	x.enlist(ctx, likely)
	return nil
}

// Transact writes the entries, in order within a partition, and the mark, all
// in a single transaction, and returns once the commit is known. The mark is nil
// where somebody else knows what counts. If entries are refused, Transact returns
// them, and nothing counts. After an error that wraps ErrUnsettled all may count,
// or nothing.
func (x *Transactions) Transact(ctx context.Context, entries []Entry, mark *kgo.Record) ([]Refusal, error) {
	leave, err := x.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, release := x.k.connections.guard(ctx)
	defer release()
	for {
		again, refused, err := x.try(ctx, entries, mark)
		if err != nil {
			return nil, x.k.stop(ctx, x.outlived(err))
		}
		if !again {
			return refused, nil
		}
	}
}

// try writes a transaction. again: the transaction was aborted and may succeed
// next time.
func (x *Transactions) try(ctx context.Context, entries []Entry, mark *kgo.Record) (again bool, refused []Refusal, err error) {
	rounds, refused, err := x.plan(ctx, entries)
	if err != nil || len(refused) > 0 {
		return false, refused, err
	}
	if mark != nil {
		if rounds, err = x.withMark(ctx, rounds, mark); err != nil {
			return false, nil, err
		}
	}
	committed := false
	defer func() {
		if committed {
			return
		}
		for _, round := range rounds { // for the next attempt
			eventsOf(round)
		}
	}()
	failed, err := x.write(ctx, rounds)
	if err != nil {
		return false, nil, err
	}
	if len(failed) == 0 {
		x.k.goOn()
		x.refusals.Reset()
		x.limit = min(2*x.limit, batchLimit(x.k))
		err := x.commit(ctx, rounds)
		if committed = err == nil; committed {
			x.leftOut()
		}
		return false, nil, err
	}
	if err := x.abort(ctx); err != nil {
		return false, nil, err
	}
	return x.judge(ctx, failed, topicOf(mark))
}

// topicOf is the topic of the mark; "" for none.
func topicOf(mark *kgo.Record) string {
	if mark == nil {
		return ""
	}
	return mark.Topic
}

// begin begins a transaction, unless one is open.
func (x *Transactions) begin(ctx context.Context) error {
	if x.enlisted != nil {
		return nil
	}
	if wait := time.Until(x.Next()); wait > 0 {
		if err := backoff.Sleep(ctx, wait); err != nil {
			return err
		}
	}
	if err := x.renumber(ctx); err != nil {
		return err
	}
	if err := x.k.client.BeginTransaction(); err != nil {
		return unsettled(fmt.Errorf("begin a transaction: %w", err))
	}
	x.begun = time.Now()
	x.enlisted, x.enlistBy = make(partitions), x.begun.Add(enlistPatience)
	return nil
}

// write sends all records. It stops early at the first round with refusals, and returns the
// refused records by partition.
func (x *Transactions) write(ctx context.Context, rounds [][]placed) ([]batch, error) {
	if err := x.begin(ctx); err != nil {
		return nil, err
	}
	x.k.transactions.TransactionOpen(time.Now())
	x.enlist(ctx, partitionsOf(rounds))
	for _, round := range rounds {
		if err := x.k.send(ctx, round); err != nil {
			return nil, unsettled(err)
		}
		if err := x.k.believe(ctx, round, x.k.tally(round)); err != nil {
			return nil, err
		}
		x.awaitKnown(ctx, round)
		if len(x.k.failed) > 0 {
			return x.k.batches(round), nil
		}
	}
	return nil, nil
}

// commit returns nil only after the broker's word that the transaction is committed.
func (x *Transactions) commit(ctx context.Context, rounds [][]placed) error {
	id, epoch, err := x.k.client.ProducerID(ctx)
	if err != nil {
		return unsettled(err)
	}
	records, bytes := 0, int64(0)
	for _, round := range rounds {
		records += len(round)
		for _, p := range round {
			bytes += p.Size()
			if p.Record.ProducerID != id || p.Record.ProducerEpoch != epoch {
				return unsettled(fmt.Errorf("a record was written by producer %d/%d, but the producer is %d/%d by now: what it wrote before is aborted",
					p.Record.ProducerID, p.Record.ProducerEpoch, id, epoch))
			}
		}
	}
	asked := time.Now()
	if err := x.end(ctx, kgo.TryCommit); err != nil {
		return unsettled(fmt.Errorf("commit the transaction: %w", err))
	}
	for _, round := range rounds {
		x.k.raise(round, x.k.tally(round), marker)
	}
	x.recent.note(partitionsOf(rounds), time.Now())
	x.epochs.committed(epoch)
	x.k.transactions.TransactionCommitted(records, bytes, time.Since(asked))
	x.k.transactions.TransactionOpen(time.Time{})
	return nil
}

// abort ends the transaction, and nothing of it counts.
func (x *Transactions) abort(ctx context.Context) error {
	if err := x.end(ctx, kgo.TryAbort); err != nil {
		return unsettled(fmt.Errorf("abort the transaction: %w", err))
	}
	x.k.transactions.TransactionAborted()
	x.k.transactions.TransactionOpen(time.Time{})
	return nil
}

// end asks for the end of the transaction.
func (x *Transactions) end(ctx context.Context, how kgo.TransactionEndTry) error {
	ctx, cancel := context.WithTimeout(ctx, x.timeout+endPatience)
	defer cancel()
	defer func() { x.ended, x.enlisted = time.Now(), nil }()
	return x.k.client.EndTransaction(ctx, how)
}
