package sink

import (
	"context"
	"errors"
	"slices"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Await returns once the topics of the entries exist, perhaps by an operator's hand, and
// their schemas are known and their large values kept. Transact then need not wait for any of
// these, as a rule. If a transaction is prepared, Await calls end before the wait; end must call
// Transact. An event that can never be written is
// left to Transact.
func (x *Transactions) Await(ctx context.Context, entries []Entry, end func() error) error {
	ctx, release := x.k.connections.guard(ctx)
	defer release()
	unknown, err := x.unknown(ctx, entries)
	if err != nil {
		return err
	}
	for _, topic := range unknown {
		s := newSearch(topic, missingPolicy(x.k.cfg))
		for {
			done, open, err := x.lookAside(ctx, s)
			if err != nil {
				return err
			}
			if done {
				break
			}
			if open {
				if err := end(); err != nil {
					return err
				}
			}
			if s.retry.Pause(ctx) != nil {
				return context.Cause(ctx)
			}
		}
	}
	if err := x.awaitSchemas(ctx, entries, end); err != nil {
		return err
	}
	return x.awaitValues(ctx, entries, end)
}

// unknown are the entries' unknown topics.
func (x *Transactions) unknown(ctx context.Context, entries []Entry) (topics []string, err error) {
	leave, err := x.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	for i := range entries {
		if entries[i].Bad != nil {
			continue
		}
		if topic := entries[i].Event.Record.Topic; x.k.topics[topic] == nil && !slices.Contains(topics, topic) {
			topics = append(topics, topic)
		}
	}
	return topics, nil
}

// lookAside looks for the topic once, while nobody else uses the sink. done: the topic is
// known, or its events can never be written. open: a transaction is open.
func (x *Transactions) lookAside(ctx context.Context, s *search) (done, open bool, err error) {
	leave, err := x.enter(ctx)
	if err != nil {
		return false, false, err
	}
	defer leave()
	if x.k.topics[s.name] != nil {
		return true, false, nil
	}
	t, err := x.k.look(ctx, s)
	if _, bad := errors.AsType[*transform.BadEvent](err); err != nil && !bad {
		return false, false, x.k.stop(ctx, err)
	}
	if t != nil {
		x.k.observer.TopicUsed(s.name)
	}
	return t != nil || err != nil, x.enlisted != nil, nil
}
