package quarantine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
)

// TopicOption is the option that begins the topic's name.
const TopicOption = "errors.quarantine_topic"

// Operations are all that the topic takes: of the connector, and of the verbs.
const Operations = store.TopicOperations

// Log reads the topic.
type Log struct {
	client *kgo.Client
	topic  string
	tools  broker.Tools
}

// Open connects, for the topic.
func Open(opts []kgo.Opt, topic string, tools broker.Tools) (*Log, error) {
	client, err := broker.Connect(opts...)
	if err != nil {
		return nil, fmt.Errorf("quarantine: %w", err)
	}
	return &Log{client: client, topic: topic, tools: tools}, nil
}

// Close closes the connections.
func (l *Log) Close() { l.client.Close() }

// Topic is the topic's name.
func (l *Log) Topic() string { return l.topic }

// Ensure checks the topic, or creates it with the settings.
func (l *Log) Ensure(ctx context.Context, settings map[string]string) error {
	return l.explain(store.EnsureTopic(ctx, l.client, l.topic, TopicOption, settings, l.tools))
}

// explain adds the topic, and the remedy for a missing right.
func (l *Log) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.TopicAuthorizationFailed) && failure.RemedyOf(err) == "":
		err = failure.Configf(l.tools.Allow(Operations, l.topic), "%w", err)
	}
	return fmt.Errorf("quarantine topic %s: %w", l.topic, err)
}

// openPatience is how long a read waits for the end of transactions: longer than brokers keep a
// dead instance's. openPoll is the time between two looks.
const (
	openPatience = 25 * time.Second
	openPoll     = 20 * time.Millisecond
)

// Walk calls visit with the records up to the end of the log now, in order, until visit wants
// no more; end is behind the last. exists is false where there is no topic.
func (l *Log) Walk(ctx context.Context, visit func(*kgo.Record) (more bool, err error)) (end int64, exists bool, err error) {
	return l.walk(ctx, 0, visit)
}

// walk is Walk from the offset on.
func (l *Log) walk(ctx context.Context, from int64, visit func(*kgo.Record) (more bool, err error)) (end int64, exists bool, err error) {
	logs, err := kafkalog.Open(ctx, l.client, l.topic, 0)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, l.explain(err)
	}
	start, end := logs[0].Bounds()
	for from = max(from, start); from < end; {
		records, next, err := l.read(ctx, logs[0], from)
		if err != nil {
			return 0, true, l.explain(err)
		}
		for _, rec := range records {
			if rec.Offset >= end {
				break
			}
			if more, err := visit(rec); err != nil || !more {
				return end, true, err
			}
		}
		if next == from {
			break
		}
		from = next
	}
	return end, true, nil
}

// read waits for the end of transactions. A transaction of the connector takes milliseconds.
func (l *Log) read(ctx context.Context, log *kafkalog.Partition, from int64) (records []*kgo.Record, next int64, err error) {
	for ends := time.Now().Add(openPatience); ; {
		records, next, err = log.Read(ctx, from)
		if !errors.Is(err, kafkalog.ErrOpenTransaction) || time.Now().After(ends) {
			return records, next, err
		}
		if paused := backoff.Sleep(ctx, openPoll); paused != nil {
			return nil, from, paused
		}
	}
}

// None has Read keep no value.
func None(uint64) bool { return false }

// Read reads the topic. Only events chosen by whole keep value and headers: all values
// together may exceed the memory.
func (l *Log) Read(ctx context.Context, whole func(number uint64) bool) (*Contents, error) {
	f := newFold(whole)
	end, exists, err := l.Walk(ctx, func(rec *kgo.Record) (bool, error) {
		f.add(rec)
		return true, nil
	})
	c := f.contents()
	c.End, c.Exists = end, exists
	return c, err
}

// Loaded is an instance's beginning.
type Loaded struct {
	Set     *Set
	Pending []*Command // to be carried out
	// Again are events with a record in the topic, to come again from the log with another
	// number: they are not in the Set.
	Again []uint64
	From  int64 // the offset to follow from
}

// Load reads the topic for a new instance. Events parked under other rules are an error. again
// reports whether a parked event's record is of a Kafka transaction without effect; nil: none
// is. The caller alone writes events to the topic.
func (l *Log) Load(ctx context.Context, limit int, rules string, again func(*kgo.Record) bool) (of Loaded, err error) {
	f, unsure := newFold(None), make(map[uint64]bool)
	end, _, err := l.Walk(ctx, func(rec *kgo.Record) (bool, error) {
		if number, ok := numberOf(rec); ok && rec.Value != nil && again != nil && again(rec) {
			unsure[number] = true
		}
		f.add(rec)
		return true, nil
	})
	c := f.contents()
	if err == nil {
		err = c.Changed(l.topic, rules)
	}
	if err != nil {
		return Loaded{}, err
	}
	c.Entries = slices.DeleteFunc(c.Entries, func(e *Entry) bool {
		if unsure[e.Number] {
			of.Again = append(of.Again, e.Number)
		}
		return unsure[e.Number]
	})
	of.Set, of.Pending = c.set(l.topic, limit, rules)
	of.From = end
	return of, nil
}

// Follow calls take with each command, and each answer, from the offset on, until ctx ends. It
// looks every so often, and begins again in a topic created anew. failed is told why the topic
// cannot be read, and nil once it can.
func (l *Log) Follow(ctx context.Context, from int64, every time.Duration, take func(*Command), failed func(error)) {
	for backoff.Sleep(ctx, every) == nil {
		end, exists, err := l.walk(ctx, from, func(rec *kgo.Record) (bool, error) {
			if c, ok := ReadCommand(rec); ok {
				take(c)
			}
			from = rec.Offset + 1
			return true, nil
		})
		if ctx.Err() != nil {
			return
		}
		if err == nil && !exists {
			err = l.explain(kerr.UnknownTopicOrPartition)
		}
		if err == nil && end < from {
			var c *Contents
			if c, err = l.Read(ctx, None); err == nil {
				end, from = c.End, c.End
				for _, command := range c.Commands {
					take(command)
				}
			}
		}
		if failed(err); err == nil {
			from = max(from, end)
		}
	}
}
