package kafkatest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// EndHalf has some partitions of the id's open transaction write the end, like a
// coordinator killed in the middle, but the coordinator's own log does not know of
// the end. The coordinator must not have moved. version is transaction.version: from
// 2 on, the end has a separate epoch. EndHalf returns how many partitions have the
// end, and how many have not.
func (b *Broker) EndHalf(t testing.TB, id string, version int16, which func(topic string, partition int32) bool) (ended, left int) {
	t.Helper()
	client := b.Client(t)
	defer client.Close()
	testserver.Do(t, "end a half of the transaction of "+id, func(ctx context.Context) error {
		all, err := kadm.NewClient(client).DescribeTransactions(ctx, id)
		if err != nil {
			return err
		}
		tx := all[id]
		if tx.Err != nil {
			return tx.Err
		}
		marker := kmsg.NewWriteTxnMarkersRequestMarker()
		marker.ProducerID, marker.ProducerEpoch, marker.Committed = tx.ProducerID, tx.ProducerEpoch, true
		if version >= 2 {
			marker.ProducerEpoch++
		}
		for topic, partitions := range tx.Topics {
			some := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			some.Topic = topic
			for partition := range partitions {
				if which(topic, partition) {
					some.Partitions = append(some.Partitions, partition)
					ended++
				} else {
					left++
				}
			}
			if len(some.Partitions) > 0 {
				marker.Topics = append(marker.Topics, some)
			}
		}
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		req.Markers = append(req.Markers, marker)
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		for _, marker := range resp.Markers {
			for _, topic := range marker.Topics {
				for _, p := range topic.Partitions {
					if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	return ended, left
}

// AwaitEnd returns once no transaction of the id is open.
func (b *Broker) AwaitEnd(t testing.TB, id string) {
	t.Helper()
	client := b.Client(t)
	defer client.Close()
	await.Until(t, "the end of the transaction of "+id, func() bool {
		all, err := kadm.NewClient(client).DescribeTransactions(t.Context(), id)
		state := all[id].State
		return err == nil && all[id].Err == nil && (state == "CompleteAbort" || state == "CompleteCommit" || state == "Empty")
	})
}
