package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// awaitBrokers returns nil once a broker has accepted this client and the
// topics may be read; otherwise a lasting error, or ctx's cause. The client
// itself would retry in silence.
func (s *session) awaitBrokers(ctx context.Context) error {
	waits := backoff.Series{Range: s.scheduler.waits}
	for {
		err := s.check(ctx)
		if err == nil || fatal(err) {
			return err
		}
		missing := errors.Is(err, kerr.UnknownTopicOrPartition)
		if missing && s.cfg.RequireTopics {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.cfg.Logger.Warn("cannot consume yet", "error", err)
		if missing {
			return nil // the client finds a later topic
		}
		if err := waits.Pause(ctx); err != nil {
			return err
		}
	}
}

func (s *session) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	if regex, _ := s.client.OptValue(kgo.ConsumeRegex).(bool); regex {
		if err := s.client.Ping(ctx); err != nil {
			return fmt.Errorf("reach a broker: %w", err)
		}
		return nil
	}
	topics, err := kadm.NewClient(s.client).ListTopics(ctx, s.cfg.Topics...)
	if err != nil {
		return fmt.Errorf("look for the topics: %w", err)
	}
	for _, t := range topics.Sorted() {
		if t.Err != nil {
			err = errors.Join(err, fmt.Errorf("look for topic %s: %w", t.Topic, t.Err))
		}
	}
	return err
}
