package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// committer commits the scheduler's finished records. The lock is held from the
// look at the positions until the broker has answered, and a partition is only
// given up under the same lock. So no commit comes late, after another member
// has the partition.
type committer struct {
	client    *kgo.Client
	scheduler *scheduler
	topics    *topicWatch
	observer  *Observer
	mu        sync.Mutex
}

// commit commits the positions of the partitions named, or of all for nil.
// Everything refused stays uncommitted.
func (c *committer) commit(ctx context.Context, ids map[string][]int32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.commitLocked(ctx, ids)
}

func (c *committer) commitLocked(ctx context.Context, ids map[string][]int32) error {
	at := c.topics.certain(c.scheduler.uncommitted(ids))
	if len(at) == 0 {
		return nil
	}
	begun := time.Now()
	var failed error
	c.client.CommitOffsetsSync(c.topics.marked(ctx), at, func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if failed = err; err == nil {
			failed = c.note(at, req, resp)
		}
	})
	c.observer.committed(begun, failed)
	if failed != nil {
		return fmt.Errorf("commit offsets: %w", failed)
	}
	return nil
}

// note takes the broker's answer. A partition it does not mention is not
// committed. From version 10 on, topics have ids there.
func (c *committer) note(at positions, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse) error {
	names := map[[16]byte]string{}
	for _, t := range req.Topics {
		names[t.TopicID] = t.Topic
	}
	var errs []error
	for _, t := range resp.Topics {
		if t.Topic == "" {
			t.Topic = names[t.TopicID]
		}
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				errs = append(errs, fmt.Errorf("%s/%d: %w", t.Topic, p.Partition, err))
				if unknownTopic(err) {
					c.topics.suspect(t.Topic, err)
				}
			} else if position, ok := at[t.Topic][p.Partition]; ok {
				c.scheduler.committed(partitionID{t.Topic, p.Partition}, position)
			}
		}
	}
	return errors.Join(errs...)
}

// commitWaits space the repetitions of a last commit.
var commitWaits = backoff.Range{First: 50 * time.Millisecond, Longest: time.Second}

// commitLast commits until success, a final failure, or ctx's end.
func (c *committer) commitLast(ctx context.Context, ids map[string][]int32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	waits := backoff.Series{Range: commitWaits}
	for {
		err := c.commitLocked(ctx, ids)
		if err == nil || expelled(err) || fatal(err) || ctx.Err() != nil {
			return err
		}
		if waits.Pause(ctx) != nil {
			return err
		}
	}
}

// expelled reports whether a commit failed because the group no longer has this
// member.
func expelled(err error) bool {
	return errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedMemberEpoch)
}
