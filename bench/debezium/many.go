package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// manies compares a process of many pipelines with a worker of as many connectors, each
// with a database, slot and topic of its own: start, idle, under traffic.
func (s *stage) manies(ctx context.Context) error {
	load := fmt.Sprintf("%d databases, %d commits/s of %d+100 bytes each", s.pipelines, s.rate/s.trafficPerTx, s.payload)
	theirs := &debezium{title: defaultName, dir: s.dir, heap: s.manyHeap, connector: s.debezium.Map(), road: s.road()}
	s.describe(load, s.ours())
	s.describe(load, theirs)
	turn := func(subject string, start func([]rig.Pipeline) (running, error)) figures.Turn {
		return figures.Turn{Subject: subject, Take: func(ctx context.Context) (map[string]float64, error) { return s.many(ctx, start) }}
	}
	return s.results.Play(ctx, os.Stdout, load, s.rounds, []figures.Turn{turn(oursName, s.startPipelines), turn(theirs.name(), theirs.startConnectors)})
}

// startPipelines starts cdc-outbox with the pipelines.
func (s *stage) startPipelines(pipelines []rig.Pipeline) (running, error) {
	file := filepath.Join(s.dir, "cdc-outbox.yaml")
	if err := os.WriteFile(file, rig.Configuration(pipelines, ""), 0o600); err != nil {
		return nil, err
	}
	r := s.road()
	settings := slices.Concat([]string{"http.listen=", "log.level=warn", "sink.kafka.brokers=" + r.brokers}, r.trust(), s.set)
	began := time.Now()
	p, err := s.connector.Start([]string{"run", "-c", file}, settings...)
	if err != nil {
		return nil, err
	}
	return own{p, began}, nil
}

// startConnectors starts a worker with a connector for each pipeline.
func (s *debezium) startConnectors(pipelines []rig.Pipeline) (running, error) {
	connectors := make([]properties, len(pipelines))
	for n, p := range pipelines {
		to := s.road
		to.url = p.URL
		connectors[n] = connection(to, task{p.Slot, p.Topic}).with(s.connector)
	}
	return s.startCold(connectors...)
}

// many measures a subject with databases of its own.
func (s *stage) many(ctx context.Context, start func([]rig.Pipeline) (running, error)) (values map[string]float64, err error) {
	pipelines, err := s.createPipelines(ctx)
	defer func() { err = errors.Join(err, s.dropPipelines(pipelines)) }()
	if err != nil {
		return nil, err
	}
	r, err := start(pipelines)
	if err != nil {
		return nil, err
	}
	values, err = s.measureMany(ctx, r, pipelines)
	return values, errors.Join(r.Explain(err), r.Stop())
}

func (s *stage) createPipelines(ctx context.Context) (pipelines []rig.Pipeline, err error) {
	for range s.pipelines {
		s.topics++
		p, err := rig.CreatePipeline(ctx, s.db, s.kafka, fmt.Sprintf("bench_%d", s.topics), fmt.Sprintf("bench-%d", s.topics), s.partitions)
		if err != nil {
			return pipelines, err
		}
		if s.tls {
			p.URL = p.DB.TLSURL
		}
		pipelines = append(pipelines, p)
	}
	return pipelines, rig.CreateSlots(ctx, pipelines)
}

// dropPipelines removes databases, slots and topics.
func (s *stage) dropPipelines(pipelines []rig.Pipeline) (err error) {
	for _, p := range pipelines {
		err = errors.Join(err, p.DB.DropSlot(p.Slot))
		p.DB.Close()
		err = errors.Join(err, s.db.Exec(context.Background(), `DROP DATABASE `+p.Slot), s.kafka.DeleteTopic(p.Topic))
	}
	return err
}

// measureMany measures the start, the idle time, and the traffic.
func (s *stage) measureMany(ctx context.Context, r running, pipelines []rig.Pipeline) (map[string]float64, error) {
	if err := s.db.AwaitStreaming(ctx, pipelines, r.Alive); err != nil {
		return nil, err
	}
	began, _ := r.began()
	started := time.Since(began)
	values, err := s.inIdleTime(ctx, r)
	if err != nil {
		return nil, err
	}
	values[metricStart] = millis(started)
	busy, err := s.trafficOfMany(ctx, r, pipelines)
	maps.Copy(values, busy)
	return values, err
}

// trafficOfMany measures a traffic, after another for the JVMs' compilers.
func (s *stage) trafficOfMany(ctx context.Context, r running, pipelines []rig.Pipeline) (map[string]float64, error) {
	var urls, topics []string
	for _, p := range pipelines {
		urls, topics = append(urls, p.DB.URL), append(topics, p.Topic)
	}
	rate := s.rate * len(pipelines)
	warm := max(rate, warmRate)
	f, err := s.startFlow(ctx, r, urls, topics, roomFor(warm, s.warmTraffic)+roomFor(rate, s.settle+s.window))
	if err != nil {
		return nil, err
	}
	_, err = f.measure(ctx, warm, s.warmTraffic, 0)
	var values map[string]float64
	if err == nil {
		values, err = f.measure(ctx, rate, s.settle, s.window)
	}
	if err := errors.Join(err, f.consumer.close()); err != nil {
		return nil, err
	}
	return values, complete(ctx, pipelines, f.consumer.arrived)
}

// complete compares the number of each topic's records with that of its database's rows:
// every event has arrived, where it belongs, and once.
func complete(ctx context.Context, pipelines []rig.Pipeline, arrived map[string]int64) error {
	for _, p := range pipelines {
		var rows int64
		if err := p.DB.Conn.QueryRow(ctx, `SELECT count(*) FROM outbox`).Scan(&rows); err != nil {
			return err
		}
		if rows == 0 || arrived[p.Topic] != rows {
			return fmt.Errorf("topic %s has %d records of %d events", p.Topic, arrived[p.Topic], rows)
		}
	}
	return nil
}
