package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
)

// Impatient makes the client's requests return when their contexts end,
// whatever the broker does. The request itself may go on in the background
// until the attempt to connect ends, at the latest until the client is closed.
type Impatient struct{ Client *kgo.Client }

// Request implements kmsg.Requestor.
func (i Impatient) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return await.Answer(ctx, func() (kmsg.Response, error) { return i.Client.Request(ctx, req) })
}

// Topics asks for topics, with the allowed operations, and for the cluster's brokers, at
// least one. The answer has an error for each topic that brokers do not tell of. Topics
// requires no privileges, and creates no topic.
func Topics(ctx context.Context, of kmsg.Requestor, names ...string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none: nil would be all
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics, req.IncludeTopicAuthorizedOperations = append(req.Topics, t), true
	}
	return metadata(ctx, of, req)
}

// AllTopics is Topics for every topic, without operations.
func AllTopics(ctx context.Context, of kmsg.Requestor) (*kmsg.MetadataResponse, error) {
	return metadata(ctx, of, kmsg.NewPtrMetadataRequest())
}

func metadata(ctx context.Context, of kmsg.Requestor, req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error) {
	resp, err := req.RequestWith(ctx, of)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	case kerr.ErrorForCode(resp.ErrorCode) != nil:
		return nil, kerr.ErrorForCode(resp.ErrorCode)
	case len(resp.Brokers) == 0:
		return nil, errors.New("the cluster has no broker")
	}
	return resp, nil
}

// Topic asks for a single topic. The error may also be the brokers' answer about the topic.
func Topic(ctx context.Context, of kmsg.Requestor, name string) (*kmsg.MetadataResponseTopic, error) {
	resp, err := Topics(ctx, of, name)
	if err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 {
		return nil, fmt.Errorf("metadata of %d topics in the answer about one", len(resp.Topics))
	}
	return &resp.Topics[0], kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// NewTopic is a topic to create. -1 is the broker's default of a number.
type NewTopic struct {
	Name       string
	Partitions int32
	Replicas   int16
	Settings   map[string]string
}

// CreateTopic asks brokers to create a topic within the time. The error may also be a
// refusal, with the brokers' sentence.
func CreateTopic(ctx context.Context, of kmsg.Requestor, topic NewTopic, within time.Duration) error {
	_, err := createTopic(ctx, of, topic, within, false)
	return err
}

// TryTopic asks how brokers would create a topic, and creates none.
func TryTopic(ctx context.Context, of kmsg.Requestor, topic NewTopic, within time.Duration) (*kmsg.CreateTopicsResponseTopic, error) {
	return createTopic(ctx, of, topic, within, true)
}

func createTopic(ctx context.Context, of kmsg.Requestor, topic NewTopic, within time.Duration, try bool) (*kmsg.CreateTopicsResponseTopic, error) {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic.Name, topic.Partitions, topic.Replicas
	for key, value := range topic.Settings {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = key, &value
		t.Configs = append(t.Configs, c)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.TimeoutMillis, req.ValidateOnly = append(req.Topics, t), int32(within/time.Millisecond), try
	resp, err := req.RequestWith(ctx, of)
	if err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 {
		return nil, fmt.Errorf("%d topics in the answer about one", len(resp.Topics))
	}
	answer := &resp.Topics[0]
	err = kerr.ErrorForCode(answer.ErrorCode)
	if err != nil && answer.ErrorMessage != nil {
		err = fmt.Errorf("%w (%s)", err, *answer.ErrorMessage)
	}
	return answer, err
}

// Permits reports whether op is among the allowed operations, bits numbered by
// kmsg.ACLOperation, as far as the broker tells.
func Permits(operations int32, op kmsg.ACLOperation) bool {
	const untold = -1 << 31 // not asked for, no authorizer, or a broker before 2.3
	return operations == untold || operations&(1<<op) != 0
}
