package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ControllerAhead is how far the controller's clock is ahead of this machine's,
// plus or minus give. In the answer a controller has caught up with its own log
// just now (KIP-836). The right to Describe the cluster is required.
func ControllerAhead(ctx context.Context, of kmsg.Requestor) (ahead, give time.Duration, err error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic, topic.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{kmsg.NewDescribeQuorumRequestTopicPartition()}
	req.Topics = append(req.Topics, topic)
	asked := time.Now()
	resp, err := req.RequestWith(ctx, of)
	give = time.Since(asked) / 2
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return 0, 0, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return 0, 0, err
			}
			leader := slices.IndexFunc(p.CurrentVoters, func(v kmsg.DescribeQuorumResponseTopicPartitionReplicaState) bool { return v.ReplicaID == p.LeaderID })
			if leader >= 0 && p.CurrentVoters[leader].LastCaughtUpTimestamp > 0 {
				return time.UnixMilli(p.CurrentVoters[leader].LastCaughtUpTimestamp).Sub(asked.Add(give)), give + time.Millisecond, nil
			}
		}
	}
	return 0, 0, errors.New("controllers before Kafka 3.3 do not")
}
