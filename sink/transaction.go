package sink

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// transactionTimeout is how long brokers keep the transaction of a silent owner open.
// Consumers are held back meanwhile, and for up to ten seconds more, as brokers look every
// ten seconds (transaction.abort.timed.out.transaction.cleanup.interval.ms).
const transactionTimeout = 10 * time.Second

// slowest is the least expected throughput of a cluster, in bytes per second. Transactions
// that may be large have more time, or they would never be committed.
const slowest = 4 << 20

// Entry is an event to be written; with Bad, as a dead letter.
type Entry struct {
	Event *transform.Event
	Bad   *transform.BadEvent
}

// Refusal is an entry that can never be written unchanged.
type Refusal struct {
	Index int // of the entry
	Bad   *transform.BadEvent
}

// Transactions writes events in Kafka transactions. The methods are called from one
// goroutine at a time, but for Ends, and for Await beside Transact and Recall. After an error
// only Ends and Close may be called.
//
// Invariants:
//
//  1. A transaction counts only after a positive answer to EndTxn. No error is
//     taken for an abort, nor for a commit.
//  2. A transaction is committed only if each record was acknowledged, all under
//     one producer id and epoch: the client may get itself another epoch in
//     between, and so abort all earlier records.
//  3. No step waits for an operator while a transaction is open: topics are
//     resolved before the first record, and a prepared transaction ends before
//     the wait.
//  4. No request to end a transaction can end a later one: see epochs.
type Transactions struct {
	k       *Kafka
	id      string        // transactional
	timeout time.Duration // of a transaction, at the brokers
	ended   time.Time     // of the last transaction
	inUse   chan struct{} // capacity 1: full while a method uses the fields below, or k
	epochs  *epochs
	// limit is the most bytes of a batch. It shrinks while brokers find batches
	// too large, and grows again with each commit.
	limit int
	// enlisted are the partitions of the open transaction known to the coordinator; nil
	// without an open transaction. None is enlisted after enlistBy.
	enlisted partitions
	enlistBy time.Time
	begun    time.Time // the last transaction
	recent   recent
	refusals backoff.Series // of records for their time
	// visible counts the events that consumers see although their transaction does not
	// count. left counts those left out of the present transaction.
	visible, left map[sameness]int
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

// timeoutOf is the timeout of transactions. With transaction boundaries, a transaction may
// have everything buffered.
func timeoutOf(cfg Options) time.Duration {
	if !cfg.TransactionBoundaries {
		return transactionTimeout
	}
	return transactionTimeout + time.Duration(cfg.MaxBufferedBytes/slowest)*time.Second
}

func batchLimit(k *Kafka) int { return int(k.cfg.MaxRecordBytes) - batchOverhead }

// Close releases the resources, and waits for nothing. Brokers abort an open transaction
// after its timeout, or at the next claim.
func (x *Transactions) Close() {
	x.k.Close()
	x.k.transactions.TransactionOpen(time.Time{})
}

// enter lets the caller use the sink alone, and fails if the sink has stopped.
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
