package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

const (
	retentionInterval = time.Hour        // between two looks at the topics
	adminTimeout      = 30 * time.Second // of a single look
	forever           = time.Duration(1<<63 - 1)
)

// watchRetention warns of topics with records older than the memory of their
// keys: each time a topic's window has changed.
func (s *session) watchRetention(ctx context.Context) {
	if s.cfg.retention == 0 {
		return
	}
	warned := map[string]time.Duration{}
	for {
		if err := s.compareRetention(ctx, warned); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("cannot compare the retention of keys with that of topics", "error", err)
			if fatal(err) { // perhaps forbidden, which need not be said each time
				return
			}
		}
		if backoff.Sleep(ctx, retentionInterval) != nil {
			return
		}
	}
}

// maintain lets the Runner do the periodic work.
func (s *session) maintain(ctx context.Context) {
	s.checkStore(ctx)
	if m, ok := s.cfg.Once.Runner.(storage.Maintainer); ok {
		m.Maintain(ctx, func(err error) { s.cfg.Logger.Warn("the idempotency store needs a look", "error", err) })
	}
}

// checkStore says, once, the faults of the store.
func (s *session) checkStore(ctx context.Context) {
	c, ok := s.cfg.Once.Runner.(storage.Checker)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	problems, err := c.Check(ctx)
	if err != nil && ctx.Err() == nil {
		s.cfg.Logger.Warn("the idempotency store cannot be checked", "error", err)
	}
	for _, p := range problems {
		level, text := slog.LevelWarn, "the idempotency store may forget keys, or cost more than it must"
		if p.Fatal {
			level, text = slog.LevelError, "the idempotency store cannot work"
		}
		s.cfg.Logger.Log(ctx, level, text, "problem", p.Text, "remedy", p.Remedy)
	}
}

func (s *session) compareRetention(ctx context.Context, warned map[string]time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	admin := kadm.NewClient(s.client)
	configs, err := admin.DescribeTopicConfigs(ctx, s.client.GetConsumeTopics()...)
	if err != nil {
		return fmt.Errorf("describe the topics: %w", err)
	}
	oldest, err := oldestRecords(ctx, admin, s.client.GetConsumeTopics())
	if err != nil {
		return err
	}
	for _, c := range configs {
		if errors.Is(c.Err, kerr.UnknownTopicOrPartition) {
			continue
		}
		if c.Err != nil {
			return fmt.Errorf("describe topic %s: %w", c.Name, c.Err)
		}
		window := replayWindow(c)
		age := oldest[c.Name]
		// Records may be older than the topic's retention.
		if max(window, age) <= s.cfg.retention {
			delete(warned, c.Name)
			continue
		}
		if before, ok := warned[c.Name]; ok && before == window {
			continue
		}
		warned[c.Name] = window
		s.cfg.Logger.Warn("the topic can be replayed after its keys were forgotten: records would be handled again",
			"topic", c.Name, "topic_retention", duration(window), "oldest_record_age", age.Round(time.Second).String(),
			"idempotency_retention", s.cfg.retention.String(),
			"remedy", "keep keys longer (the runner's retention) or lower the topic's retention.ms, and reset no offsets beyond the shorter of the two")
	}
	return nil
}

// replayWindow is how long a topic keeps records.
func replayWindow(c kadm.ResourceConfig) time.Duration {
	window := forever
	for _, entry := range c.Configs {
		switch value := entry.MaybeValue(); entry.Key {
		case "cleanup.policy":
			if value != "" && !strings.Contains(value, "delete") {
				return forever // compacted: the last record of a key stays
			}
		case "retention.ms":
			if ms, err := strconv.ParseInt(value, 10, 64); err == nil && ms >= 0 && ms < int64(forever/time.Millisecond) {
				window = time.Duration(ms) * time.Millisecond
			}
		}
	}
	return window
}

func duration(d time.Duration) string {
	if d == forever {
		return "forever"
	}
	return d.String()
}

// oldestRecords returns the age of each topic's oldest record. Segments are
// deleted as a whole, so the age may be above the topic's retention.
func oldestRecords(ctx context.Context, admin *kadm.Client, topics []string) (map[string]time.Duration, error) {
	offsets, err := admin.ListOffsetsAfterMilli(ctx, 0, topics...)
	if err != nil {
		return nil, fmt.Errorf("ask for the oldest records: %w", err)
	}
	ages := map[string]time.Duration{}
	offsets.Each(func(o kadm.ListedOffset) {
		if o.Err == nil && o.Timestamp > 0 {
			ages[o.Topic] = max(ages[o.Topic], time.Since(time.UnixMilli(o.Timestamp)))
		}
	})
	return ages, nil
}
