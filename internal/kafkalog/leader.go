package kafkalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// answerTime is how long a broker has to say who leads. A silent broker delays
// a read by as much.
const answerTime = 3 * time.Second

// newest returns what brokers know of the topic: of each partition, the word of
// the broker that knows of the latest leader. A leader deposed while it was cut
// off from the others, but not from us, still answers as the leader, with the
// end its log had then, and names itself if asked who leads. So every broker is
// asked. Brokers not answering in time are passed over.
func newest(ctx context.Context, client *kgo.Client, topic string) (kadm.TopicDetail, error) {
	known, err := describe(ctx, client, topic) // by any broker; now the client knows all of them
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
			detail, err := describe(ctx, one, topic)
			if kgo.IsRetryableBrokerErr(err) { // the connection was idle, and is gone
				detail, err = describe(ctx, one, topic)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil && split == nil {
				known, split = later(known, detail)
			}
		})
	}
	asked.Wait()
	return known, split
}

// describe asks for the leaders of the topic's partitions.
func describe(ctx context.Context, of kmsg.Requestor, topic string) (detail kadm.TopicDetail, err error) {
	resp, err := broker.Topics(ctx, of, topic)
	if err != nil {
		return detail, err
	}
	for _, t := range resp.Topics {
		detail = kadm.TopicDetail{Topic: topic, ID: t.TopicID, Err: kerr.ErrorForCode(t.ErrorCode), Partitions: kadm.PartitionDetails{}}
		for _, p := range t.Partitions {
			detail.Partitions[p.Partition] = kadm.PartitionDetail{Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Err: kerr.ErrorForCode(p.ErrorCode)}
		}
	}
	return detail, nil
}

// later returns the later of two brokers' knowledge of a topic. A partition
// without a leader keeps the last epoch; brokers knowing no epochs say -1.
func later(a, b kadm.TopicDetail) (kadm.TopicDetail, error) {
	switch {
	case b.Topic == "" || b.Err != nil:
		return a, nil
	case a.Topic == "" || a.Err != nil:
		return b, nil
	case a.ID != b.ID: // the topic was deleted and created, and the epochs with it
		return a, kerr.InconsistentTopicID
	}
	for n, p := range b.Partitions {
		q, ok := a.Partitions[n]
		if !ok || p.LeaderEpoch > q.LeaderEpoch || p.LeaderEpoch == q.LeaderEpoch && q.Err != nil {
			a.Partitions[n] = p
		}
	}
	return a, nil
}

// ask sends the partition's leader a request. A leader out of reach is not
// asked again: there may be another by then. Callers begin again after that
// error, as they do if the broker answers that it is not the leader, or not in
// the epoch asked for.
func (l *Partition) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	resp, err := l.client.Broker(int(l.leader.Leader)).Request(ctx, req)
	_, refused := errors.AsType[*kerr.Error](err)
	if err == nil || refused || ctx.Err() != nil || errors.Is(err, kgo.ErrClientClosed) {
		return resp, err
	}
	return nil, fmt.Errorf("%w: broker %d, the last that is known: %w", kerr.LeaderNotAvailable, l.leader.Leader, err)
}
