package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// turns are the subjects' turns. The first subject is the others' measure.
func (s *stage) turns() (turns []figures.Turn) {
	subjects := []subject{{1, 1, false}, {s.pipelines, 1, false}}
	switch {
	case s.processes > 1:
		subjects = []subject{{s.pipelines, 1, false}, {s.pipelines, s.processes, false}}
	case s.poll:
		subjects = []subject{{s.pipelines, 1, false}, {s.pipelines, 1, true}}
	}
	for _, of := range subjects {
		turns = append(turns, figures.Turn{Subject: of.String(), Take: func(ctx context.Context) (map[string]float64, error) { return s.take(ctx, of) }})
	}
	return turns
}

// take measures a subject: start, idle, under traffic.
func (s *stage) take(ctx context.Context, of subject) (values map[string]float64, err error) {
	began := time.Now()
	all, err := s.begin(ctx, of)
	defer func() { err = errors.Join(err, all.stop()) }()
	if err != nil {
		return nil, err
	}
	if err := s.awaitStreaming(ctx, of, all); err != nil {
		return nil, err
	}
	values = map[string]float64{metricStart: float64(time.Since(began).Milliseconds())}
	started, _, err := all.usage()
	if err != nil {
		return nil, err
	}
	values[metricStartCPU] = float64(started.CPU.Milliseconds())
	if err := s.idleness(ctx, of, all, values); err != nil {
		return nil, err
	}
	return values, s.traffic(ctx, all, of, values)
}

// awaitStreaming returns when all slots have a reader, or all databases a poller, and the processes
// of a fleet their shares.
func (s *stage) awaitStreaming(ctx context.Context, of subject, all programs) error {
	ctx, cancel := context.WithTimeoutCause(ctx, rig.StreamingLimit, fmt.Errorf("%s: not streaming after %s", of, rig.StreamingLimit))
	defer cancel()
	query := `SELECT count(*)::float8 FROM pg_replication_slots WHERE active`
	if of.polls {
		query = `SELECT count(DISTINCT datname)::float8 FROM pg_stat_activity WHERE application_name LIKE 'cdc-outbox%'`
	}
	return rig.Await(ctx, 20*time.Millisecond, func() (bool, error) {
		active, err := s.sum(ctx, query)
		if err := errors.Join(err, all.alive(ctx)); err != nil || int(active) != of.pipelines {
			return false, err
		}
		return s.balanced(ctx, of)
	})
}

// sum adds the servers' answers.
func (s *stage) sum(ctx context.Context, query string) (sum float64, err error) {
	for _, server := range s.hosts {
		var answer float64
		if err := server.Conn.QueryRow(ctx, query).Scan(&answer); err != nil {
			return 0, err
		}
		sum += answer
	}
	return sum, nil
}

// The server's own databases have other names than ours.
const (
	connections  = `SELECT count(*)::float8 FROM pg_stat_activity WHERE backend_type IN ('client backend', 'walsender') AND pid <> pg_backend_pid()`
	transactions = `SELECT sum(xact_commit + xact_rollback)::float8 FROM pg_stat_database WHERE datname LIKE 'bench%'`
)

// reading is everything counted up to a moment.
type reading struct {
	used   rig.Usage
	pss    float64
	asked  float64       // transactions on PostgreSQL
	served time.Duration // processor time of PostgreSQL
	passed int64         // bytes of the fleet's coordinator
}

func (s *stage) read(ctx context.Context, all programs) (r reading, err error) {
	if r.used, r.pss, err = all.usage(); err != nil {
		return r, err
	}
	if s.group != nil {
		if r.passed, err = s.group.Passed(); err != nil {
			return r, err
		}
	}
	if r.served, err = s.served(ctx); err != nil {
		return r, err
	}
	r.asked, err = s.sum(ctx, transactions)
	return r, err
}

// served adds the processor time of all servers, of all their processes.
func (s *stage) served(ctx context.Context) (sum time.Duration, err error) {
	for _, server := range s.hosts {
		used, err := server.ServerTime(ctx)
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// idleness measures the processes without events.
func (s *stage) idleness(ctx context.Context, of subject, all programs, values map[string]float64) error {
	if err := backoff.Sleep(ctx, s.settle); err != nil {
		return err
	}
	before, err := s.read(ctx, all)
	if err != nil {
		return err
	}
	if err := backoff.Sleep(ctx, s.idle); err != nil {
		return err
	}
	after, err := s.read(ctx, all)
	if err != nil {
		return err
	}
	values[metricConns], err = s.sum(ctx, connections)
	values[metricIdleRSS], values[metricIdlePSS] = after.used.RSS, after.pss
	values[metricIdleCPU] = 100 * (after.used.CPU - before.used.CPU).Seconds() / s.idle.Seconds()
	values[metricServers] = (after.asked - before.asked) / s.idle.Seconds()
	values[metricIdleServer] = 100 * (after.served - before.served).Seconds() / s.idle.Seconds()
	if of.processes > 1 {
		values[metricGroup] = float64(after.passed-before.passed) / 1024 / s.idle.Minutes()
	}
	return err
}

// traffic measures the processes while rows are committed: as many in all for a single pipeline
// as for many.
func (s *stage) traffic(ctx context.Context, all programs, of subject, values map[string]float64) (err error) {
	w, err := startWriters(ctx, s, of)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.end()) }()
	if err := backoff.Sleep(ctx, s.settle); err != nil {
		return err
	}
	began := time.Now()
	before, err := s.read(ctx, all)
	if err != nil {
		return err
	}
	arrived, err := s.arrivals(ctx, of.pipelines)
	if err != nil {
		return err
	}
	if err := backoff.Sleep(ctx, s.window); err != nil {
		return err
	}
	after, err := s.read(ctx, all)
	if err != nil {
		return err
	}
	later, err := s.arrivals(ctx, of.pipelines)
	if err != nil {
		return err
	}
	if later == arrived {
		return errors.New("no event arrived")
	}
	values[metricRate] = float64(later-arrived) / time.Since(began).Seconds()
	values[metricCPU] = (after.used.CPU - before.used.CPU).Seconds() * 1e6 / float64(later-arrived)
	values[metricServer] = (after.served - before.served).Seconds() * 1e6 / float64(later-arrived)
	values[metricPeak], values[metricPSS] = after.used.Peak, after.pss
	return nil
}

// arrivals is the number of events in Kafka.
func (s *stage) arrivals(ctx context.Context, pipelines int) (int64, error) {
	topics := make([]string, pipelines)
	for n := range topics {
		topics[n] = s.made[n].Topic
	}
	return s.broker.Records(ctx, topics...)
}
