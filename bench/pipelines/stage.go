package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// Names of everything measured.
const (
	metricStart    = "start_ms"
	metricStartCPU = "start_cpu_ms"
	metricIdleRSS  = "idle_rss_mib"
	metricIdleCPU  = "idle_cpu_percent"
	metricServers  = "idle_commits_per_second"
	metricRate     = "events_per_second"
	metricCPU      = "cpu_us_per_event"
	metricPeak     = "peak_rss_mib"
	metricConns    = "connections"
	metricIdlePSS  = "idle_pss_mib"
	metricPSS      = "pss_mib"
	metricGroup    = "idle_group_kib_per_minute"
	metricServer   = "server_us_per_event"

	metricIdleServer = "idle_server_percent"
)

var metrics = []figures.Metric{
	{Name: metricStart, Title: "start to all streaming", Unit: "ms", Better: "less"},
	{Name: metricStartCPU, Title: "its CPU", Unit: "ms", Better: "less"},
	{Name: metricConns, Title: "connections to PostgreSQL", Unit: "", Better: "less"},
	{Name: metricIdleRSS, Title: "idle RSS", Unit: "MiB", Better: "less"},
	{Name: metricIdlePSS, Title: "idle PSS", Unit: "MiB", Better: "less"},
	{Name: metricIdleCPU, Title: "idle CPU", Unit: "% of a core", Better: "less"},
	{Name: metricServers, Title: "idle transactions on PostgreSQL", Unit: "1/s", Better: "less"},
	{Name: metricIdleServer, Title: "idle CPU of PostgreSQL", Unit: "% of a core", Better: "less"},
	{Name: metricServer, Title: "CPU of PostgreSQL per event, the writers' included", Unit: "µs", Better: "less"},
	{Name: metricRate, Title: "throughput", Unit: "events/s", Better: "more"},
	{Name: metricCPU, Title: "CPU per event", Unit: "µs", Better: "less"},
	{Name: metricPeak, Title: "peak RSS", Unit: "MiB", Better: "less"},
	{Name: metricPSS, Title: "PSS under traffic", Unit: "MiB", Better: "less"},
	{Name: metricGroup, Title: "idle traffic of the fleet's coordinator", Unit: "KiB/min", Better: "less"},
}

// slot is the name of a pipeline's slot and database.
func slot(n int) string { return fmt.Sprint("bench_", n) }

func topic(n int) string { return fmt.Sprint("bench.", n) }

// stage is the servers, with a database for each pipeline.
type stage struct {
	options
	connector *rig.Connector
	hosts     []*rig.Database // each a server
	made      []rig.Pipeline  // without their connections
	broker    *rig.Broker
	group     *rig.Broker // the fleet's coordinator, with no other clients; nil: no fleet
	results   *figures.Report
	dir       string
}

func newStage(ctx context.Context, o options) (*stage, error) {
	s := &stage{options: o}
	if err := s.start(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stage) start(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "cdc-outbox-pipelines-"); err != nil {
		return err
	}
	if s.connector, err = rig.NewConnector(ctx, s.binary); err != nil {
		return err
	}
	if s.broker, err = rig.StartBroker(ctx, s.kafka); err != nil {
		return err
	}
	if s.processes > 1 {
		if s.group, err = rig.StartFake(ctx); err != nil {
			return err
		}
	}
	room := strconv.Itoa(5*s.pipelines + 50)
	for range s.servers {
		server, err := rig.StartDatabase(ctx, map[string]string{
			"max_connections": room, "max_wal_senders": room, "max_replication_slots": room, "shared_buffers": "64MB", "max_wal_size": "1GB",
		})
		if err != nil {
			return err
		}
		s.hosts = append(s.hosts, server)
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	s.results = figures.New("pipelines", metrics, map[string]string{"PostgreSQL": s.hosts[0].Version, s.broker.Name: s.broker.Version})
	fmt.Printf("%d pipelines, %d servers of PostgreSQL %s, %s %s, %s; %s\n", s.pipelines, len(s.hosts), s.hosts[0].Version,
		s.broker.Name, s.broker.Version, s.delivery, s.results.Machine)
	return nil
}

// prepare makes the databases, slots and topics of the pipelines.
func (s *stage) prepare(ctx context.Context) error {
	for n := range s.pipelines {
		p, err := rig.CreatePipeline(ctx, s.hosts[n%len(s.hosts)], s.broker, slot(n), topic(n), 1)
		if err != nil {
			return err
		}
		defer p.DB.Close() // the subjects' connections are counted
		if s.poll {
			if err := p.DB.Exec(ctx, createPolled); err != nil {
				return err
			}
		}
		s.made = append(s.made, p)
	}
	return rig.CreateSlots(ctx, s.made)
}

// createPolled makes the table of a polling pipeline, for setup to complete.
const createPolled = `CREATE TABLE polled (LIKE outbox INCLUDING ALL,
	seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY, published boolean NOT NULL DEFAULT false, published_at timestamptz)`

func (s *stage) close() {
	for _, b := range []*rig.Broker{s.broker, s.group} {
		if b != nil {
			b.Stop()
		}
	}
	for _, server := range s.hosts {
		server.Close()
	}
	if s.connector != nil {
		s.connector.Remove()
	}
	_ = os.RemoveAll(s.dir) // a temporary directory
}
