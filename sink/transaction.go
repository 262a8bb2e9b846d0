package sink

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// transactionTimeout is how long brokers keep a transaction open whose owner is
// silent. It holds consumers back for that long, and for up to ten seconds more:
// brokers look only that often (transaction.abort.timed.out.transaction.cleanup.interval.ms).
const transactionTimeout = 10 * time.Second

// slowest is how many bytes per second a cluster is expected to take at least. A
// transaction that may be large has more time, or it would never be committed.
const slowest = 4 << 20

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

// Transactions writes events in Kafka transactions. Its methods are called from one
// goroutine at a time, but for Ends, and for Await, which may be called beside Transact and
// Recall. After an error only Ends and Close may be called.
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

// NewTransactions returns Transactions with the transactional id; see NewKafka.
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

// Close releases the resources. It does not wait for anything. Brokers abort an open transaction when its time
// is over, or at the next claim.
func (x *Transactions) Close() {
	x.k.Close()
	x.k.transactions.TransactionOpen(time.Time{})
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
