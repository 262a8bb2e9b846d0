package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// Finish implements Transactor.
//
// A coordinator writes its decision to its log, waits until the other brokers have
// it, and then has each partition write a marker. One that is killed before they
// have it, and started again before the controller has noticed, believes that it is
// the coordinator still. It reads its log to the end, and has markers written of a
// decision that nobody else knows. Its successor finds the transaction open, and
// aborts what is left of it at the next claim. Apache Kafka 4.1.1 does so; see
// docs/RELIABILITY.md.
//
// A commit is decided upon only for a producer that asked for it. So to ask again, for
// the same epoch, is right. It is seen where each transaction has an epoch of its own
// (transaction.version 2), as the marker's is then one more than the transaction's.
//
// The state is asked for first: a coordinator that acts alone goes on with that until
// another one answers.
func (x *Transactions) Finish(ctx context.Context, lastMarker func(context.Context) (*kgo.Record, error)) (finished bool, err error) {
	ctx, release := x.k.connections.guard(ctx)
	defer release()
	limited, cancel := context.WithTimeout(ctx, claimPatience)
	defer cancel()
	state, err := x.state(limited)
	if err != nil {
		return false, x.k.stop(ctx, fmt.Errorf("look at transactional id %q: %w", x.id, err))
	}
	if state.State != "Ongoing" {
		return false, nil
	}
	marker, err := lastMarker(limited)
	if err != nil {
		return false, err
	}
	if marker == nil || !commits(marker) || state.ProducerID != marker.ProducerID || state.ProducerEpoch+1 != marker.ProducerEpoch {
		return false, nil
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = x.id, state.ProducerID, state.ProducerEpoch, true
	resp, err := req.RequestWith(limited, x.k.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return false, x.k.stop(ctx, fmt.Errorf("commit what is left of a transaction of transactional id %q: %w", x.id, err))
	}
	return true, nil
}

// commits reports whether the control record is the marker of a commit.
func commits(marker *kgo.Record) bool {
	var key kmsg.ControlRecordKey
	return key.ReadFrom(marker.Key) == nil && key.Type == kmsg.ControlRecordKeyTypeCommit
}

// state asks the coordinator for the state of the transactional id, until no end of
// a transaction is under way. It is the zero one if there is none, or if brokers
// refuse to tell: the claim says why. Nothing may be in flight.
func (x *Transactions) state(ctx context.Context) (kmsg.DescribeTransactionsResponseTransactionState, error) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{x.id}
	retry := backoff.Series{Range: waits}
	var none kmsg.DescribeTransactionsResponseTransactionState
	if known, err := x.describes(ctx); err != nil || !known {
		return none, err
	}
	for {
		resp, err := req.RequestWith(ctx, x.k.client)
		state := none
		if err == nil && len(resp.TransactionStates) == 1 {
			state = resp.TransactionStates[0]
			err = kerr.ErrorForCode(state.ErrorCode)
		}
		refusal, refused := errors.AsType[*kerr.Error](err)
		switch {
		case refused && !refusal.Retriable:
			return none, nil
		case err == nil && state.State != "PrepareCommit" && state.State != "PrepareAbort" && state.State != "PrepareEpochFence":
			return state, nil
		}
		if paused := retry.Pause(ctx); paused != nil {
			return none, errors.Join(err, paused)
		}
		if err != nil { // the client remembers a coordinator that is gone
			if err := x.k.replaceClient(); err != nil {
				return none, err
			}
		}
	}
}

// describes reports whether brokers can tell. Those that cannot have no epoch for each
// transaction either.
func (x *Transactions) describes(ctx context.Context) (bool, error) {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, x.k.client)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
		return k.ApiKey == kmsg.DescribeTransactions.Int16()
	}), nil
}
