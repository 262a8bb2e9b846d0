package broker

import (
	"context"
	"errors"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Coordinated returns why brokers name no coordinator of the transactional id, or nil.
func Coordinated(ctx context.Context, of kmsg.Requestor, id string) error {
	const transactional = 1
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = transactional, id, []string{id}
	resp, err := req.RequestWith(ctx, of)
	switch {
	case err != nil:
		return err
	case len(resp.Coordinators) > 0:
		return kerr.ErrorForCode(resp.Coordinators[0].ErrorCode)
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// nobody is a producer id of no producer.
const nobody = math.MaxInt64

// Claimable returns the reason against writes with the transactional id, or nil. Coordinated
// requires the right to Describe only. So Claimable asks for the abort of a transaction of an
// unknown producer: brokers look at the right to Write first, and then at the producer.
// While the owner's transaction ends, they look no further, and the right is there.
func Claimable(ctx context.Context, of kmsg.Requestor, id string) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID = id, nobody
	resp, err := req.RequestWith(ctx, of)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if errors.Is(err, kerr.InvalidProducerIDMapping) || errors.Is(err, kerr.ConcurrentTransactions) {
		return nil
	}
	return err
}

// Enlist adds partitions, by topic, to the producer's open transaction at the coordinator.
// While the previous transaction is not finished, the error is the same for all partitions.
func Enlist(ctx context.Context, of kmsg.Requestor, id string, producer int64, epoch int16, topics map[string][]int32) error {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, producer, epoch
	for topic, partitions := range topics {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, of)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return nil
}

// Feature returns a broker's finalized level of a feature of the cluster, 0 for none.
func Feature(ctx context.Context, of kmsg.Requestor, name string) (int16, error) {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, of)
	if err != nil {
		return 0, err
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == name {
			return f.MaxVersionLevel, nil
		}
	}
	return 0, nil
}
