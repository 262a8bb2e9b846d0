package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Consumer is a member of a consumer group, and handles each record once.
type Consumer struct {
	cfg     Config
	process Process
}

// New checks the configuration. New connects to nothing.
func New(cfg Config) (*Consumer, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("check the consumer's configuration: %w", err)
	}
	process, err := cfg.process()
	if err != nil {
		return nil, fmt.Errorf("check the consumer's configuration: %w", err)
	}
	if err := kgo.ValidateOpts(cfg.options()...); err != nil {
		return nil, fmt.Errorf("check the consumer's client options: %w", err)
	}
	return &Consumer{cfg: cfg, process: process}, nil
}

// Run consumes until ctx ends, and returns nil then, having stopped in order:
// fetching ends, handlers may go on for Config.DrainTimeout, then their
// contexts end with ErrCutOff; everything finished is committed, and the group
// left. Run returns earlier, in the same order, with a lasting error: missing
// authorization, a missing topic with Config.RequireTopics, a batch too large
// to decompress, another group's scope.
//
// All goroutines have ended when Run returns; so Run waits for a handler
// ignoring the context, though the group does not. Run may be called again,
// also concurrently: each call is a separate member.
func (c *Consumer) Run(ctx context.Context) error {
	for {
		s, err := c.open(ctx)
		if err != nil {
			return err
		}
		if err = s.run(ctx); !errors.Is(err, errAnew) {
			return err
		}
		c.cfg.Logger.Error("a topic was deleted and created again: the consumer joins the group anew")
	}
}

// session is a membership of the group: a Run, or the part until a topic was
// created anew.
type session struct {
	cfg       *Config
	process   Process
	client    *kgo.Client
	scheduler *scheduler
	committer *committer
	room      *room
	topics    *topicWatch
	// abandon ends the context of all handlers.
	abandon context.CancelCauseFunc
}

// open starts the client; the client joins the group by itself.
func (c *Consumer) open(ctx context.Context) (*session, error) {
	// The handlers outlive ctx: they may finish.
	base, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	s := &session{cfg: &c.cfg, process: c.process, abandon: abandon}
	s.scheduler = newScheduler(base, s.cfg)
	// The group's callbacks wait for ready: they may come before NewClient
	// returns.
	ready := make(chan struct{})
	s.topics = newTopicWatch(s)
	b := &beginnings{session: s}
	client, err := kgo.NewClient(append(c.cfg.options(),
		kgo.OnOffsetsFetched(b.fetched),
		kgo.AdjustFetchOffsetsFn(func(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			<-ready
			return b.adjust(ctx, offsets)
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, _ *kgo.Client, ids map[string][]int32) { <-ready; s.revoked(ctx, ids) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, ids map[string][]int32) { <-ready; s.lost(ids) }),
	)...)
	if err != nil {
		abandon(errStopping)
		return nil, fmt.Errorf("start the Kafka client: %w", err)
	}
	s.client = client
	s.committer = &committer{client: client, scheduler: s.scheduler, topics: s.topics, observer: &s.cfg.Observer}
	s.room = &room{client: client, scheduler: s.scheduler}
	close(ready)
	return s, nil
}

// run owns the session's goroutines: the workers, which end when the scheduler
// is closed, and the commit loop, the watches of retention, topics and scope and the
// Runner's maintenance, which end with ctx.
// The caller's is the poller.
func (s *session) run(ctx context.Context) error {
	var workers, loops sync.WaitGroup
	for range s.cfg.Concurrency {
		workers.Go(s.work)
	}
	loopCtx, fail := context.WithCancelCause(ctx)
	loops.Go(func() { s.commitLoop(loopCtx, fail) })
	loops.Go(func() { s.watchRetention(loopCtx) })
	loops.Go(func() { s.topics.watch(loopCtx, fail) })
	loops.Go(func() { s.maintain(loopCtx) })

	err := s.awaitBrokers(loopCtx)
	if err == nil && !s.cfg.Once.shadow() {
		// Before the first record: another group's messages would be skipped.
		var answered bool
		scope := &scopeWatch{session: s}
		if answered, err = scope.look(loopCtx); err == nil {
			loops.Go(func() { scope.watch(loopCtx, answered, fail) })
		}
	}
	if err == nil {
		err = s.poll(loopCtx)
	}
	fail(errStopping)
	loops.Wait()
	s.stop()
	workers.Wait()
	s.abandon(errStopping)
	if ctx.Err() != nil && !fatal(err) {
		return nil
	}
	return err
}

// poll hands records to the scheduler until ctx ends, and returns the cause, or
// until polling is of no use any more.
func (s *session) poll(ctx context.Context) error {
	for {
		// Everything in the client: a part would be a single partition's, and the
		// others would wait.
		fetches := s.client.PollFetches(ctx)
		err := s.take(ctx, fetches)
		// Rebalances are held up only until here: records and the partition
		// they are of become known together. No handler runs meanwhile.
		s.client.AllowRebalance()
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.room.makeWay(ctx)
	}
}

func (s *session) take(ctx context.Context, fetches kgo.Fetches) error {
	s.topics.fetched(fetches)
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) > 0 {
			s.scheduler.add(partitionID{p.Topic, p.Partition}, p.Records)
		}
	})
	var failed error
	fetches.EachError(func(topic string, partition int32, err error) {
		if loss, ok := errors.AsType[*kgo.ErrDataLoss](err); ok {
			s.cfg.Logger.Error("records are gone from the topic before they were consumed", "topic", topic, "partition", partition, "error", loss)
			return
		}
		switch {
		case ctx.Err() != nil:
		case topic != "" && unknownTopic(err):
			s.topics.suspect(topic, err)
		case fatal(err):
			failed = errors.Join(failed, fmt.Errorf("consume %s: %w", place(topic, partition), advised(err)))
		default:
			s.cfg.Logger.Warn("cannot fetch, the client tries again", "topic", topic, "partition", partition, "error", err)
		}
	})
	return failed
}

func place(topic string, partition int32) string {
	if topic == "" {
		return "as a member of the group"
	}
	return fmt.Sprintf("%s/%d", topic, partition)
}

func (s *session) commitLoop(ctx context.Context, fail context.CancelCauseFunc) {
	ticker := time.NewTicker(s.cfg.CommitInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		err := s.commitOnce(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
		case fatal(err):
			fail(err)
		default:
			s.cfg.Logger.Warn("cannot commit, it is tried again", "error", err)
		}
	}
}

func (s *session) commitOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RevokeTimeout)
	defer cancel()
	return s.committer.commit(ctx, nil)
}

// stop ends the handlers, commits and leaves the group.
func (s *session) stop() {
	parts := s.scheduler.closePartitions(nil)
	_, stuck := s.scheduler.settleRunning(parts, s.cfg.DrainTimeout, s.cfg.RevokeTimeout, errStopping)
	if stuck > 0 {
		s.cfg.Logger.Error("handlers do not heed their contexts", "handlers", stuck)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.RevokeTimeout)
	defer cancel()
	if err := s.committer.commitLast(ctx, nil); err != nil {
		s.cfg.Logger.Warn("cannot commit at the end, records will be consumed again", "error", err)
	}
	// The group's callback would wait for handlers once more.
	s.giveUp(parts)
	if err := s.client.LeaveGroupContext(ctx); err != nil {
		s.cfg.Logger.Warn("cannot leave the group, its partitions rest until the session times out", "error", err)
	}
	s.client.CloseAllowingRebalance()
	// Close polls once more to drain the buffers, and so holds up rebalances
	// again, and with them the client's goroutine leaving the group.
	s.client.AllowRebalance()
	s.scheduler.close()
}
