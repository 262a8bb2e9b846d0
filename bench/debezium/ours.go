package main

import (
	"context"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

const oursName = "cdc-outbox"

// ours is cdc-outbox with its defaults, except for the addresses.
type ours struct {
	connector *rig.Connector
	road      road
	set       rig.Settings
	title     string
}

func (s ours) name() string    { return s.title }
func (s ours) staysWarm() bool { return false }
func (s ours) close() error    { return nil }

func (s ours) start(_ context.Context, t task) (running, error) {
	began := time.Now()
	p, err := s.connector.Run(append(s.road.wiring(t), s.set...)...)
	if err != nil {
		return nil, err
	}
	return own{p.Process, began}, nil
}

// own is a subject with a separate process: all of the process's usage counts.
type own struct {
	*rig.Process
	at time.Time
}

func (o own) began() (time.Time, rig.Usage) { return o.at, rig.Usage{} }
