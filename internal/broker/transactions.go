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

// nobody is a producer id that no broker has given to anybody.
const nobody = math.MaxInt64

// Claimable returns why the transactional id may not be written with, or nil. To find its
// coordinator takes the right to Describe only. So it asks for the abort of a
// transaction of a producer that is not there. Brokers look at the right to Write
// first, and then at the producer.
func Claimable(ctx context.Context, of kmsg.Requestor, id string) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID = id, nobody
	resp, err := req.RequestWith(ctx, of)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if errors.Is(err, kerr.InvalidProducerIDMapping) {
		return nil
	}
	return err
}

// Enlist tells the coordinator of partitions, by topic, of the producer's open transaction.
// While the coordinator is busy with the one before, it says so of all partitions alike.
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

// Feature returns the finalized level of a feature of the cluster, as a broker has it; 0:
// it has none.
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
