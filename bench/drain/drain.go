package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// drain measures the connector on a backlog, with the defaults except for the
// addresses: from the start of the process until the slot's confirmed position is the
// backlog's end.
func (s *stage) drain(from source) take { return s.drainTo(s.broker, from) }

// drainTo is drain, to another broker.
func (s *stage) drainTo(broker *rig.Broker, from source) take {
	return s.drainBy(s.connector, broker, from)
}

// drainBy is drainTo, by another program.
func (s *stage) drainBy(connector *rig.Connector, broker *rig.Broker, from source) take {
	return func(ctx context.Context) (_ map[string]float64, err error) {
		s.drained++
		// New names: the broker stays, with the checkpoint of a slot's name.
		topic, slot := fmt.Sprintf("bench-%d", s.drained), fmt.Sprintf("bench_%d", s.drained)
		topics, route := []string{topic}, topic
		if from.Topics > 0 {
			topics, route = nil, topic+".${routedByValue}"
			for n := range from.Topics {
				topics = append(topics, fmt.Sprintf("%s.order%d", topic, n))
			}
		}
		if err := broker.CreateTopics(ctx, cmp.Or(from.Partitions, s.partitions), topics...); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, broker.DeleteTopic(topics...)) }()
		if err := from.db.CopySlot(ctx, from.Slot, slot); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, from.db.DropSlot(slot)) }()
		settings := rig.Wiring(from.url, slot, broker.Addr, route)
		if from.Messages {
			settings = append(settings, "source.mode=message")
		}
		used, err := runToEnd(ctx, connector, from.db, slot, from.End, append(settings, s.set...))
		if err != nil {
			return nil, err
		}
		if n, err := broker.Records(ctx, topics...); err != nil || n != int64(from.Events()) {
			return nil, errors.Join(err, fmt.Errorf("Kafka has %d records instead of %d", n, from.Events()))
		}
		values := perEvent(from.Events(), used)
		values[metricSpilled], err = from.db.Spilled(ctx, slot)
		return values, err
	}
}

// runToEnd runs the connector until the slot is confirmed up to the end.
func runToEnd(ctx context.Context, connector *rig.Connector, db *rig.Database, slot, end string, settings []string) (r rig.Reading, err error) {
	began := time.Now()
	program, err := connector.Run(settings...)
	if err != nil {
		return r, err
	}
	defer program.Kill()
	if err := db.AwaitConfirmed(ctx, slot, end, program.Alive); err != nil {
		return r, program.Explain(err)
	}
	r.Took = time.Since(began)
	if r.Server, err = db.WalsenderTime(ctx, slot); err != nil {
		return r, err
	}
	r.Reader, err = program.Stop()
	return r, err
}
