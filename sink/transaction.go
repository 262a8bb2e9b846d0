package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// transactionTimeout is how long brokers keep a transaction open whose owner is
// silent. It holds consumers back for that long, and for up to ten seconds more:
// brokers look only that often (transaction.abort.timed.out.transaction.cleanup.interval.ms).
const transactionTimeout = 10 * time.Second

// slowest is how many bytes per second a cluster is expected to take at least. A
// transaction that may be large has more time, or it would never be committed.
const slowest = 4 << 20

// endPatience bounds the wait for the answer to EndTxn, beyond the timeout. Brokers
// may end the transaction later than that: the next claim does so.
const endPatience = 2 * time.Second

// breath is the least time between two transactions: the markers of the last one are
// written in it, and events gather for the next one. Without it, transactions would be
// smaller and cost more, and events would not be there earlier.
const breath = 4 * time.Millisecond

// unaided is that time where enlist does nothing. Brokers then wait for these markers,
// and ask about them every 20 ms; who comes a few milliseconds later does not wait.
const unaided = 6 * time.Millisecond

// claimPatience bounds a claim: what an earlier owner left open is aborted first.
const claimPatience = 30 * time.Second

// ErrUnsettled is wrapped by the errors of a Transactor after which nobody knows
// what counts: only the checkpoint tells, after a new claim. It has no class.
var ErrUnsettled = errors.New("the Kafka transaction did not end as it should, so that only the checkpoint tells what counts")

// ErrFenced is the ErrUnsettled of a transactor whose transactional id another
// one has claimed, or whose transaction took too long for the brokers.
var ErrFenced = fmt.Errorf("another producer has the transactional id, or the transaction took too long: %w", ErrUnsettled)

// Entry is an event to be written; with Bad, its dead letter is.
type Entry struct {
	Event *transform.Event
	Bad   *transform.BadEvent
}

// Refusal is an entry that can never be written as it is.
type Refusal struct {
	Index int // of the entry
	Bad   *transform.BadEvent
}

// Transactor writes events in Kafka transactions. Its methods are called from
// one goroutine at a time, but for Await, which may be called beside Transact and
// Recall. After an error only Ends and Close may be called.
type Transactor interface {
	// Usable tells why the transactional id could not be claimed, as far as that shows
	// without a claim. It may be called again and again before Claim, and changes nothing.
	Usable(ctx context.Context) error
	// Claim gets the transactional id, and ends what an earlier owner of it left
	// open. It is called once, before the methods below.
	Claim(ctx context.Context) error
	// Compare compares what brokers had acknowledged, as the checkpoint says, with what
	// they have now. It is called once after Claim.
	Compare(ctx context.Context, ends checkpoint.Ends) error
	// Ends are how far the logs of topics reach at least. It may be called at any time
	// before Close.
	Ends() checkpoint.Ends
	// Recall finds out what consumers see of transactions that may count in part.
	// Transact leaves that out until Settled is called. Recall returns those that do
	// count in part, or may.
	Recall(ctx context.Context, doubtful []checkpoint.Doubtful) (torn []checkpoint.Doubtful, err error)
	// Settled says that all events of those transactions count now.
	Settled()
	// Await returns once the topics of the entries exist, which may take an
	// operator. Transact does not wait for them as a rule. If a transaction is prepared,
	// Await calls end before it waits, which is to Transact something.
	Await(ctx context.Context, entries []Entry, end func() error) error
	// Transact writes the entries, in order within a partition, and the mark, all
	// in one transaction, and returns once that is known to be committed. If
	// entries are refused, it returns these, and nothing counts. After an error
	// that wraps ErrUnsettled all may count, or nothing.
	Transact(ctx context.Context, entries []Entry, mark *kgo.Record) ([]Refusal, error)
	// Next is the time before which no transaction begins. Events that come until then
	// had better be in the same one.
	Next() time.Time
	// Prepare does what brokers can do for the next transaction before its events are
	// known, so that those which come meanwhile can be in it. Transact is to follow soon.
	Prepare(ctx context.Context) error
	// Close releases the resources. It does not wait for anything.
	Close()
}

// Transactions is the Transactor of a Kafka cluster.
//
// Invariants:
//
//  1. Only the answer to EndTxn that says so makes a transaction count. No error
//     is taken for an abort, nor for a commit.
//  2. A transaction is committed only if each of its records was acknowledged,
//     all under one producer id and epoch: the client may get itself another
//     epoch in between, which aborts what it had written before.
//  3. No step waits for an operator while a transaction is open: topics are
//     resolved before it has a record, and what is prepared ends before that
//     waits.
//  4. No request to end a transaction can end a later one: see epochs.
type Transactions struct {
	k       *Kafka
	id      string        // transactional
	timeout time.Duration // of a transaction, at the brokers
	ended   time.Time     // of the last transaction
	inUse   chan struct{} // capacity 1: full while a method uses what is below, or k
	epochs  *epochs
	// limit is how much a batch may have. It shrinks while brokers find batches
	// too large, and grows again with each transaction that they take.
	limit int
	// enlisted are the partitions of the open transaction that the coordinator was told
	// of; nil if none is open. By enlistBy it is told no more.
	enlisted partitions
	enlistBy time.Time
	begun    time.Time // the last transaction
	recent   recent
	refusals backoff.Series // of records for their time
	// visible are events that consumers see though their transaction does not count, and
	// how often. left are those that the transaction under way leaves out for it.
	visible, left map[identity]int
}

var _ Transactor = (*Transactions)(nil)

// TransactionObserver is told how transactions go. It must not block.
type TransactionObserver interface {
	// TransactionOpen is told when the records of a transaction go out, and, with the
	// zero time, when it has ended.
	TransactionOpen(since time.Time)
	// TransactionCommitted is told of a commit: of how many records, how many bytes
	// of keys, values and headers these have, and how long brokers took for the
	// answer to EndTxn.
	TransactionCommitted(records int, bytes int64, took time.Duration)
	// TransactionAborted is told of an abort.
	TransactionAborted()
}

// unobserved is the TransactionObserver by default.
type unobserved struct{}

func (unobserved) TransactionOpen(time.Time)                      {}
func (unobserved) TransactionCommitted(int, int64, time.Duration) {}
func (unobserved) TransactionAborted()                            {}

// WithTransactionObserver reports transactions to o.
func WithTransactionObserver(o TransactionObserver) Option {
	return func(k *Kafka) { k.transactions = o }
}

// NewTransactions returns a Transactor with the transactional id; see NewKafka.
func NewTransactions(cfg Options, id string, opts ...Option) (*Transactions, error) {
	timeout := timeoutOf(cfg)
	epochs := new(epochs)
	k, err := newProducer(cfg, opts, kgo.TransactionalID(id), kgo.TransactionTimeout(timeout), kgo.RetryTimeoutFn(epochs.retryFor))
	if err != nil {
		return nil, err
	}
	return &Transactions{k: k, id: id, timeout: timeout, inUse: make(chan struct{}, 1), epochs: epochs, limit: batchLimit(k),
		refusals: backoff.Series{Range: waits}}, nil
}

// timeoutOf is the timeout of transactions. With transaction boundaries, one may
// have all that is buffered.
func timeoutOf(cfg Options) time.Duration {
	if !cfg.TransactionBoundaries {
		return transactionTimeout
	}
	return transactionTimeout + time.Duration(cfg.MaxBufferedBytes/slowest)*time.Second
}

func batchLimit(k *Kafka) int { return int(k.cfg.MaxRecordBytes) - batchOverhead }

// Close implements Transactor. Brokers abort an open transaction when its time
// is over, or at the next claim.
func (x *Transactions) Close() {
	x.k.Close()
	x.k.transactions.TransactionOpen(time.Time{})
}

// Claim implements Transactor.
func (x *Transactions) Claim(ctx context.Context) error {
	ctx, release := x.k.connections.guard(ctx)
	defer release()
	limited, cancel := context.WithTimeout(ctx, claimPatience)
	defer cancel()
	retry := backoff.Series{Range: waits}
	for refused := 1; ; refused++ {
		_, _, err := x.k.client.ProducerID(limited)
		if err == nil {
			return nil
		}
		if broker.MayPass(err) || refused == broker.Refusals {
			return x.k.stop(ctx, x.unclaimed(err))
		}
		// The client keeps a refusal, so that only a new one asks again.
		if err := x.k.replaceClient(); err != nil {
			return err
		}
		if err := retry.Pause(limited); err != nil {
			return x.k.stop(ctx, err)
		}
	}
}

// unclaimed is the error of a claim that failed.
func (x *Transactions) unclaimed(err error) error {
	switch {
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		err = failure.Configf(AllowTransactionsCommand(x.k.cfg, x.id), "%w", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kerr.ConcurrentTransactions):
		err = &failure.Error{Class: failure.Transient, Remedy: "cdc-outbox txn list; " + EndingRemedy(x.k.cfg, x.id),
			Err: fmt.Errorf("brokers have not granted it within %s: they have not ended the transaction before: %w", claimPatience, err)}
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		err = x.timeoutRefused(err)
	}
	return fmt.Errorf("claim transactional id %q: %w", x.id, err)
}

// EndingRemedy is what to do about a transaction that its coordinator does not end.
func EndingRemedy(cfg Options, id string) string {
	return "if it stays in PrepareCommit or PrepareAbort, restart the broker that coordinates it: " +
		command("kafka-transactions", cfg, fmt.Sprintf("describe --transactional-id '%s'", id))
}

// enter lets the caller use the sink alone, and fails if that has stopped.
func (x *Transactions) enter(ctx context.Context) (leave func(), err error) {
	select {
	case x.inUse <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	leave = func() { <-x.inUse }
	if err := x.k.check(); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// Next implements Transactor.
func (x *Transactions) Next() time.Time {
	if x.epochs.differ.Load() {
		return x.ended.Add(breath)
	}
	return x.ended.Add(unaided)
}

// Prepare implements Transactor. It enlists the partitions that the next transaction
// is likely to have.
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

// Transact implements Transactor.
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

// try writes one transaction. again says that it was aborted and may succeed
// when it is written again.
func (x *Transactions) try(ctx context.Context, entries []Entry, mark *kgo.Record) (again bool, refused []Refusal, err error) {
	rounds, refused, err := x.plan(ctx, entries)
	if err != nil || len(refused) > 0 {
		return false, refused, err
	}
	if rounds, err = x.withMark(ctx, rounds, mark); err != nil {
		return false, nil, err
	}
	committed := false
	defer func() {
		if committed {
			return
		}
		for _, round := range rounds { // the record of an event that is written again says where it wants to go
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
	return x.judge(ctx, failed, mark)
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

// write sends all records. It stops early at the first round of which brokers did
// not take all, and returns what they did not take, by partition.
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
		x.booked(ctx, round)
		if len(x.k.failed) > 0 {
			return x.k.batches(round), nil
		}
	}
	return nil, nil
}

// commit returns nil only if the broker says that the transaction is committed.
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

// abort ends the transaction so that nothing of it counts.
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

// lateError is the ErrFenced of a transaction that was open for as long as brokers allow:
// they have aborted it then, and no other producer is to blame, as the code may say.
type lateError struct {
	open, allowed time.Duration
	throttled     time.Duration // of that
	code          *kerr.Error
}

// Error implements error.
func (e *lateError) Error() string {
	text := fmt.Sprintf("the Kafka transaction was open for %s, and brokers abort it after %s", e.open.Round(time.Millisecond), e.allowed)
	if e.throttled > 0 {
		text += fmt.Sprintf("; in that time a quota made the connector wait for %s", e.throttled.Round(time.Millisecond))
	}
	return text + " (" + e.code.Message + ")"
}

// Is implements errors.Is.
func (e *lateError) Is(target error) bool { return target == ErrFenced || target == ErrUnsettled }

// Unwrap returns what brokers said.
func (e *lateError) Unwrap() error { return e.code }

// outlived explains the error of a transaction that took too long.
func (x *Transactions) outlived(err error) error {
	code, _ := errors.AsType[*kerr.Error](err)
	late := &lateError{time.Since(x.begun), x.timeout, x.k.connections.throttledSince(x.begun), code}
	switch {
	case !errors.Is(err, ErrFenced), x.begun.IsZero(), late.open < late.allowed, code == nil:
		return err
	case late.throttled > 0:
		return &failure.Error{Class: failure.Transient, Remedy: QuotaCommand(x.k.cfg), Err: late}
	}
	return late
}

// unsettled is the error of a transaction that has no known end.
func unsettled(err error) error {
	kind := ErrUnsettled
	for _, fenced := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.InvalidTxnState} {
		if errors.Is(err, fenced) {
			kind = ErrFenced
		}
	}
	return fmt.Errorf("%w: %w", kind, err)
}
