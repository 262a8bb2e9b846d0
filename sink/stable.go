package sink

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// StableOffsets watches how far open transactions, of any producer, hold back
// the read_committed consumers of the topics written to. It has a client of its
// own. Add may be called from any goroutine; Run is called once.
type StableOffsets struct {
	cluster *asker

	mu     sync.Mutex
	topics map[string]bool
	held   map[partition]hold // partitions with an open transaction at the last look
}

// hold is a last stable offset that does not move.
type hold struct {
	at    int64 // the offset
	since time.Time
}

// HeldBack is the worst delay of consumers.
type HeldBack struct {
	Records int64         // between last stable offset and high watermark
	For     time.Duration // since the last stable offset moved
}

// NewStableOffsets returns a watch of the topics given and added, in the cluster
// of cfg.
func NewStableOffsets(cfg Options, topics ...string) (*StableOffsets, error) {
	cluster, err := newAsker(cfg)
	if err != nil {
		return nil, err
	}
	s := &StableOffsets{cluster: cluster, topics: map[string]bool{}, held: map[partition]hold{}}
	for _, topic := range topics {
		s.Add(topic)
	}
	return s, nil
}

// Add adds a topic.
func (s *StableOffsets) Add(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topics[topic] = true
}

// Close gives the client up, after Run has returned.
func (s *StableOffsets) Close() { s.cluster.client.Close() }

// Run looks until ctx ends, and reports each result. While brokers do not answer
// there is no report.
func (s *StableOffsets) Run(ctx context.Context, every time.Duration, report func(HeldBack)) {
	for {
		if back, err := s.look(ctx, every); err == nil {
			report(back)
		}
		if backoff.Sleep(ctx, every) != nil {
			return
		}
	}
}

func (s *StableOffsets) look(ctx context.Context, limit time.Duration) (HeldBack, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s.mu.Lock()
	topics := make([]string, 0, len(s.topics))
	for topic := range s.topics {
		topics = append(topics, topic)
	}
	s.mu.Unlock()
	if len(topics) == 0 {
		return HeldBack{}, nil
	}
	stable, err := broker.StableOffsets(ctx, s.cluster.client, topics...)
	if err != nil {
		return HeldBack{}, fmt.Errorf("list the last stable offsets: %w", err)
	}
	ends, err := broker.EndOffsets(ctx, s.cluster.client, topics...)
	if err != nil {
		return HeldBack{}, fmt.Errorf("list the ends of topics: %w", err)
	}
	return s.judge(time.Now(), stable, ends), nil
}

// judge compares a look with earlier looks. A transaction begun between the two
// questions of a look shows as open.
func (s *StableOffsets) judge(now time.Time, stable, ends broker.Offsets) (worst HeldBack) {
	held := map[partition]hold{}
	for _, b := range broker.HeldBack(stable, ends) {
		p := partition{b.Topic, b.Partition}
		h, open := s.held[p]
		if !open || h.at != b.Stable {
			h = hold{b.Stable, now}
		}
		held[p] = h
		worst.Records = max(worst.Records, b.End-b.Stable)
		worst.For = max(worst.For, now.Sub(h.since))
	}
	s.held = held
	return worst
}
