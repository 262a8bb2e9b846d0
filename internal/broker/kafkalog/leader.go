package kafkalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// answerTime is a broker's time to name leaders. A silent broker delays a read by
// as much.
const answerTime = 3 * time.Second

// Topic is the brokers' knowledge of a topic.
type Topic struct {
	ID      [16]byte
	Leaders map[int32]Leader // by partition
	Err     error
}

// Leader leads a partition in an epoch, or Err is the reason of its absence.
type Leader struct {
	Node, Epoch int32
	Err         error
}

// Usable is the reason against a read of the partition now.
func (t Topic) Usable(partition int32) error {
	switch p, ok := t.Leaders[partition]; {
	case t.Err != nil:
		return t.Err
	case !ok:
		return kerr.UnknownTopicOrPartition
	default:
		return p.Err
	}
}

// newest returns the brokers' knowledge of the topic: for each partition, the word
// of the broker with the latest leader. A leader deposed while it was cut off from
// the others, but not from us, still answers as the leader, with the former end of
// the log, and names itself as the leader. So every broker is asked. Brokers not
// answering in time are passed over.
func newest(ctx context.Context, client *kgo.Client, name string) (Topic, error) {
	known, err := Describe(ctx, client, name) // by any broker; now the client knows all of them
	if err != nil {
		return known, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var (
		asked sync.WaitGroup
		mu    sync.Mutex
		split error
	)
	for _, one := range client.DiscoveredBrokers() {
		asked.Go(func() {
			topic, err := Describe(ctx, one, name)
			if kgo.IsRetryableBrokerErr(err) { // the connection was idle, and is gone
				topic, err = Describe(ctx, one, name)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil && split == nil {
				known, split = later(known, topic)
			}
		})
	}
	asked.Wait()
	return known, split
}

// Describe asks for the leaders of the topic's partitions. Errors of the topic are in Topic.
func Describe(ctx context.Context, of kmsg.Requestor, name string) (Topic, error) {
	resp, err := broker.Topics(ctx, of, name)
	if err != nil {
		return Topic{}, err
	}
	if len(resp.Topics) == 0 {
		return Topic{Err: kerr.UnknownTopicOrPartition}, nil
	}
	return TopicOf(&resp.Topics[0]), nil
}

// TopicOf is a topic of a broker's answer.
func TopicOf(t *kmsg.MetadataResponseTopic) Topic {
	topic := Topic{ID: t.TopicID, Err: kerr.ErrorForCode(t.ErrorCode), Leaders: make(map[int32]Leader, len(t.Partitions))}
	for _, p := range t.Partitions {
		topic.Leaders[p.Partition] = Leader{p.Leader, p.LeaderEpoch, kerr.ErrorForCode(p.ErrorCode)}
	}
	return topic
}

// later returns the later of two brokers' knowledge of a topic. A partition
// without a leader keeps the last epoch; brokers knowing no epochs say -1.
func later(a, b Topic) (Topic, error) {
	switch {
	case b.Err != nil:
		return a, nil
	case a.Err != nil:
		return b, nil
	case a.ID != b.ID: // the topic was deleted and created, and the epochs with it
		return a, kerr.InconsistentTopicID
	}
	for n, p := range b.Leaders {
		q, ok := a.Leaders[n]
		if !ok || p.Epoch > q.Epoch || p.Epoch == q.Epoch && q.Err != nil {
			a.Leaders[n] = p
		}
	}
	return a, nil
}

// ask sends the partition's leader a request. A leader out of reach is not
// asked again: there may be another by then. Callers begin again after such an
// error, as they do if the broker denies to be the leader in the epoch.
func (l *Partition) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	resp, err := l.client.Broker(int(l.leader.Node)).Request(ctx, req)
	_, refused := errors.AsType[*kerr.Error](err)
	if err == nil || refused || ctx.Err() != nil || errors.Is(err, kgo.ErrClientClosed) {
		return resp, err
	}
	return nil, fmt.Errorf("%w: broker %d, the last that is known: %w", kerr.LeaderNotAvailable, l.leader.Node, err)
}
