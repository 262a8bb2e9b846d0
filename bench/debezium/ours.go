package main

import (
	"context"
	"os/exec"
	"time"
)

const oursName = "cdc-outbox"

// ours is cdc-outbox with its defaults, except for where it reads and writes.
type ours struct {
	binary, dir string
	db          *postgres
	kafka       *kafka
	set         settings
}

func (s ours) name() string    { return oursName }
func (s ours) staysWarm() bool { return false }
func (s ours) close() error    { return nil }

func (s ours) arguments(t task) []string {
	args := []string{"run", "--set", "source.url=" + s.db.url, "--set", "source.slot=" + t.slot,
		"--set", "source.publication=" + publication, "--set", "sink.kafka.brokers=" + s.kafka.addr,
		"--set", "route.topic=" + t.topic, "--set", "http.listen=", "--set", "log.level=warn"}
	for _, v := range s.set {
		args = append(args, "--set", v)
	}
	return args
}

func (s ours) start(_ context.Context, t task) (running, error) {
	began := time.Now()
	p, err := startProcess(s.dir, oursName, exec.Command(s.binary, s.arguments(t)...))
	if err != nil {
		return nil, err
	}
	return own{p, began}, nil
}

// own is a subject whose process is its own: all that it uses counts.
type own struct {
	*process
	at time.Time
}

func (o own) pid() int                    { return o.process.pid }
func (o own) began() (time.Time, usage)   { return o.at, usage{} }
func (o own) alive(context.Context) error { return o.err() }
