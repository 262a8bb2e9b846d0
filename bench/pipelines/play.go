package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

const (
	// single names the subject with a single pipeline.
	single = "1 pipeline"
	// startLimit bounds a start, for slow and busy machines.
	startLimit = 5 * time.Minute
)

// turns are of one pipeline and of many.
func (s *stage) turns() []figures.Turn {
	return []figures.Turn{
		{Subject: single, Take: func(ctx context.Context) (map[string]float64, error) { return s.take(ctx, 1) }},
		{Subject: fmt.Sprintf("%d pipelines", s.pipelines), Take: func(ctx context.Context) (map[string]float64, error) { return s.take(ctx, s.pipelines) }},
	}
}

// take measures so many pipelines: start, idle, under traffic.
func (s *stage) take(ctx context.Context, pipelines int) (values map[string]float64, err error) {
	file := filepath.Join(s.dir, "cdc-outbox.yaml")
	if err := os.WriteFile(file, s.configuration(pipelines), 0o600); err != nil {
		return nil, err
	}
	began := time.Now()
	process, err := s.connector.Start([]string{"run", "-c", file}, append([]string{"http.listen=", "log.level=warn"}, s.set...)...)
	if err != nil {
		return nil, err
	}
	program := &rig.Program{Process: process}
	defer func() {
		if _, failed := program.Stop(); err == nil {
			err = failed
		}
	}()
	if err := s.awaitStreaming(ctx, pipelines, program); err != nil {
		return nil, program.Explain(err)
	}
	values = map[string]float64{metricStart: float64(time.Since(began).Milliseconds())}
	if err := s.idleness(ctx, program, values); err != nil {
		return nil, err
	}
	return values, s.traffic(ctx, program, pipelines, values)
}

// configuration has the first pipelines.
func (s *stage) configuration(pipelines int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "sink: {kafka: {brokers: [%q], delivery: %s}}\npipelines:\n", s.broker.Addr, s.delivery)
	for n := range pipelines {
		fmt.Fprintf(&b, "  p%d:\n    source: {url: %q, slot: %s, publication: %s}\n    route: {topic: %s}\n",
			n, s.databases[n], slot(n), rig.Publication, topic(n))
	}
	return []byte(b.String())
}

// awaitStreaming returns when so many slots have a reader.
func (s *stage) awaitStreaming(ctx context.Context, pipelines int, program *rig.Program) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("%d pipelines do not stream after %s", pipelines, startLimit))
	defer cancel()
	return rig.Await(ctx, 20*time.Millisecond, func() (bool, error) {
		active, err := s.sum(ctx, `SELECT count(*)::float8 FROM pg_replication_slots WHERE active`)
		return int(active) == pipelines, errors.Join(err, program.Alive(ctx))
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

// idleness measures the process without events.
func (s *stage) idleness(ctx context.Context, program *rig.Program, values map[string]float64) error {
	if err := backoff.Sleep(ctx, s.settle); err != nil {
		return err
	}
	before, err := program.Usage()
	if err != nil {
		return err
	}
	asked, err := s.sum(ctx, transactions)
	if err != nil {
		return err
	}
	if err := backoff.Sleep(ctx, s.idle); err != nil {
		return err
	}
	after, err := program.Usage()
	if err != nil {
		return err
	}
	answered, err := s.sum(ctx, transactions)
	if err != nil {
		return err
	}
	values[metricConns], err = s.sum(ctx, connections)
	values[metricIdleRSS] = after.RSS
	values[metricIdleCPU] = 100 * (after.CPU - before.CPU).Seconds() / s.idle.Seconds()
	values[metricServers] = (answered - asked) / s.idle.Seconds()
	return err
}

// traffic measures the process while rows are committed: as many in all for a single pipeline
// as for many.
func (s *stage) traffic(ctx context.Context, program *rig.Program, pipelines int, values map[string]float64) (err error) {
	w, err := startWriters(ctx, s, pipelines)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.end()) }()
	if err := backoff.Sleep(ctx, s.settle); err != nil {
		return err
	}
	began := time.Now()
	before, arrived, err := s.arrivals(ctx, program, pipelines)
	if err != nil {
		return err
	}
	if err := backoff.Sleep(ctx, s.window); err != nil {
		return err
	}
	after, later, err := s.arrivals(ctx, program, pipelines)
	if err != nil {
		return err
	}
	if later == arrived {
		return errors.New("no event arrived")
	}
	values[metricRate] = float64(later-arrived) / time.Since(began).Seconds()
	values[metricCPU] = (after.CPU - before.CPU).Seconds() * 1e6 / float64(later-arrived)
	values[metricPeak] = after.Peak
	return nil
}

// arrivals are the usage of the process, and the number of events in Kafka.
func (s *stage) arrivals(ctx context.Context, program *rig.Program, pipelines int) (used rig.Usage, events int64, err error) {
	topics := make([]string, pipelines)
	for n := range topics {
		topics[n] = topic(n)
	}
	if used, err = program.Usage(); err != nil {
		return used, 0, err
	}
	events, err = s.broker.Records(ctx, topics...)
	return used, events, err
}
