package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// The names of Debezium's subjects.
const (
	warmName    = "Debezium, warm"
	coldName    = "Debezium, cold"
	poll1Name   = "Debezium, poll 1ms"
	poll10Name  = "Debezium, poll 10ms"
	defaultName = "Debezium, defaults"
)

// debezium is the connector on Kafka Connect. A warm subject keeps the JVM, with all
// compiled code, from run to run; each run is a new connector.
type debezium struct {
	title     string
	dir, heap string
	worker    properties
	connector properties // beside the connection
	plugins   string     // a directory of more; "": none
	road      road
	warm      *worker // nil before the first run
	keep      bool    // whether the worker stays warm
}

func (s *debezium) name() string { return s.title }

func (s *debezium) staysWarm() bool { return s.keep }

func (s *debezium) configuration(t task) properties {
	return connection(s.road, t).with(s.connector)
}

func (s *debezium) start(ctx context.Context, t task) (running, error) {
	if s.keep {
		return s.startWarm(ctx, t)
	}
	return s.startCold(s.configuration(t))
}

// startCold starts a worker with the connectors.
func (s *debezium) startCold(connectors ...properties) (running, error) {
	began := time.Now()
	w, err := startWorker(s.dir, s.heap, s.plugins, standalone(s.road).with(s.worker), connectors...)
	if err != nil {
		return nil, err
	}
	return cold{own{w.Process, began}, w}, nil
}

// startWarm starts a connector in the present worker.
func (s *debezium) startWarm(ctx context.Context, t task) (running, error) {
	if s.warm == nil {
		w, err := startWorker(s.dir, s.heap, s.plugins, standalone(s.road).with(s.worker))
		if err != nil {
			return nil, err
		}
		s.warm = w
	}
	if err := s.warm.ready(ctx); err != nil {
		return nil, err
	}
	used, err := s.warm.Usage()
	if err != nil {
		return nil, err
	}
	c := connector{worker: s.warm, title: t.topic, at: time.Now(), used: used}
	if err := s.warm.put(ctx, c.title, s.configuration(t)); err != nil {
		return nil, s.warm.Explain(fmt.Errorf("create the connector: %w", err))
	}
	return c, nil
}

func (s *debezium) close() error {
	if s.warm == nil {
		return nil
	}
	w := s.warm
	s.warm = nil
	return w.Stop()
}

// cold is the connectors a worker started with.
type cold struct {
	own
	worker *worker
}

// Alive implements running. REST is asked only once listening.
func (c cold) Alive(ctx context.Context) error {
	if err := c.own.Alive(ctx); err != nil {
		return err
	}
	err := c.worker.failed(ctx)
	if errors.Is(err, errRefused) {
		return nil
	}
	return err
}

// connector is one of a warm worker's connectors in turn.
type connector struct {
	worker *worker
	title  string
	at     time.Time
	used   rig.Usage
}

func (c connector) Usage() (rig.Usage, error)       { return c.worker.Usage() }
func (c connector) began() (time.Time, rig.Usage)   { return c.at, c.used }
func (c connector) Alive(ctx context.Context) error { return c.worker.failed(ctx) }
func (c connector) Explain(err error) error         { return c.worker.Explain(err) }
func (c connector) Stop() error                     { return c.worker.remove(c.title) }
