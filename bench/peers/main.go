// Command peers compares polling with other pollers of an outbox: the same events wait
// in a table of the poller's own form, and are to be in Kafka, each acknowledged by all
// replicas before its row counts as published.
//
//	go run ./bench/peers [-events N] [-rounds N] [-json FILE] …
//
// The peers: the forwarder of Watermill (Go), with its SQL subscriber and Kafka
// publisher, as its documentation sets them up. Each is a program of its own, in the
// folder of its name, with its own go.mod.
//
// Printed are events a second from the program's start, processor time of the program
// and of the server, and transactions, dead rows and bytes of log, each for an event.
// Linux only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

const (
	metricRate   = "events_per_second"
	metricCPU    = "cpu_us_per_event"
	metricServer = "server_cpu_us_per_event"
	metricTx     = "transactions_per_event"
	metricDead   = "dead_rows_per_event"
	metricLog    = "log_bytes_per_event"
)

var metrics = []figures.Metric{
	{Name: metricRate, Title: "throughput", Unit: "events/s", Better: "more"},
	{Name: metricCPU, Title: "CPU per event", Unit: "µs", Better: "less"},
	{Name: metricServer, Title: "server's CPU", Unit: "µs", Better: "less"},
	{Name: metricTx, Title: "transactions", Unit: "per event", Better: "less"},
	{Name: metricDead, Title: "dead rows", Unit: "per event", Better: "less"},
	{Name: metricLog, Title: "log", Unit: "bytes", Better: "less"},
}

type options struct {
	events, payload, rounds int
	kafka                   bool
	binary, json            string
}

func main() { rig.Main("peers", start) }

func start(ctx context.Context) error {
	var o options
	flag.IntVar(&o.events, "events", 20_000, "events that wait")
	flag.IntVar(&o.payload, "payload", 300, "bytes of payload")
	flag.IntVar(&o.rounds, "rounds", 3, "paired rounds")
	flag.BoolVar(&o.kafka, "kafka", false, "write to Apache Kafka instead of kfake (needs Java 17 and, once, Maven)")
	flag.StringVar(&o.binary, "binary", "", "the connector; built from this tree when empty")
	flag.StringVar(&o.json, "json", "", "a file for the results")
	flag.Parse()
	if o.events < 1 || o.rounds < 1 || o.payload < 1 {
		return errors.New("want an event, a round, and a payload")
	}
	return run(ctx, o)
}

// stage is where the pollers take turns.
type stage struct {
	options
	*rig.Stage
	dir    string // of the peers' programs
	played int    // names topics
}

func run(ctx context.Context, o options) (err error) {
	s := &stage{options: o}
	if s.dir, err = os.MkdirTemp("", "cdc-outbox-bench-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(s.dir) }() // a temporary directory
	subjects, err := s.subjects(ctx)
	if err != nil {
		return err
	}
	if s.Stage, err = rig.Open(ctx, o.binary, nil, o.kafka); err != nil {
		return err
	}
	defer s.Close()
	results := figures.New("peers", metrics, map[string]string{"PostgreSQL": s.DB.Version, s.Broker.Name: s.Broker.Version})
	var turns []figures.Turn
	for _, sub := range subjects {
		turns = append(turns, figures.Turn{Subject: sub.name, Take: func(ctx context.Context) (map[string]float64, error) { return s.measure(ctx, sub) }})
	}
	load := fmt.Sprintf("%s: %d events of %d bytes", s.Broker.Name, o.events, o.payload)
	if err := results.Play(ctx, os.Stdout, load, o.rounds, turns); err != nil {
		return err
	}
	return results.Finish(os.Stdout, subjects[0].name, o.json)
}

// measure has the subject publish all events once.
func (s *stage) measure(ctx context.Context, sub subject) (_ map[string]float64, err error) {
	s.played++
	topic := fmt.Sprint("bench.", s.played)
	if err := s.Broker.CreateTopic(ctx, topic, 3); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Broker.DeleteTopic(topic)) }()
	if err := s.DB.Exec(ctx, sub.fill(s.options, topic)...); err != nil {
		return nil, err
	}
	if err := s.DB.Exec(ctx, "VACUUM ANALYZE", "CHECKPOINT"); err != nil {
		return nil, err
	}
	before, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	program, err := sub.start(s, topic)
	if err != nil {
		return nil, err
	}
	defer program.Kill()
	if err := rig.Await(ctx, 5*time.Millisecond, func() (bool, error) {
		n, err := s.Broker.Records(ctx, topic)
		return n >= int64(s.events), errors.Join(err, program.Alive(ctx))
	}); err != nil {
		return nil, program.Explain(err)
	}
	took := time.Since(began)
	if err := rig.Await(ctx, 5*time.Millisecond, func() (done bool, err error) {
		err = s.DB.Conn.QueryRow(ctx, sub.done).Scan(&done)
		return done, errors.Join(err, program.Alive(ctx))
	}); err != nil {
		return nil, program.Explain(err)
	}
	used, err := program.Usage()
	if err != nil {
		return nil, program.Explain(err)
	}
	if err := program.Stop(); err != nil {
		return nil, err
	}
	if n, err := s.Broker.Records(ctx, topic); err != nil || n != int64(s.events) {
		return nil, errors.Join(err, fmt.Errorf("the topic has %d records instead of %d", n, s.events))
	}
	after, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	per := func(n float64) float64 { return n / float64(s.events) }
	return map[string]float64{
		metricRate: float64(s.events) / took.Seconds(), metricCPU: per(used.CPU.Seconds() * 1e6),
		metricServer: per((after.server - before.server).Seconds() * 1e6), metricTx: per(float64(after.commits - before.commits)),
		metricDead: per(float64(after.dead - before.dead)), metricLog: per(float64(after.log - before.log)),
	}, nil
}

// view is the server's work up to now.
type view struct {
	server             time.Duration
	commits, dead, log int64
}

// look waits for the sessions' ends: each reports its numbers then at the latest.
func (s *stage) look(ctx context.Context) (v view, err error) {
	const others = `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())`
	if err := rig.Await(ctx, 5*time.Millisecond, func() (alone bool, err error) {
		err = s.DB.Conn.QueryRow(ctx, others).Scan(&alone)
		return alone, err
	}); err != nil {
		return v, err
	}
	if v.server, err = s.DB.ServerTime(ctx); err != nil {
		return v, err
	}
	if v.log, err = s.DB.WAL(ctx); err != nil {
		return v, err
	}
	return v, s.DB.Conn.QueryRow(ctx, `SELECT xact_commit, (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables)
		FROM pg_stat_database WHERE datname = current_database()`).Scan(&v.commits, &v.dead)
}
