package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// The names of everything measured.
const (
	metricRate    = "events_per_second"
	metricCPU     = "cpu_us_per_event"
	metricServer  = "walsender_cpu_us_per_event"
	metricBusiest = "busiest_walsender_cpu_us_per_event"
	metricPeak    = "peak_rss_mib"
	metricSpilled = "spilled_mib"
)

var metrics = []figures.Metric{
	{Name: metricRate, Title: "throughput", Unit: "events/s", Better: "more"},
	{Name: metricCPU, Title: "CPU per event", Unit: "µs", Better: "less"},
	{Name: metricServer, Title: "walsender's CPU", Unit: "µs", Better: "less"},
	{Name: metricBusiest, Title: "busiest walsender's", Unit: "µs", Better: "less"},
	{Name: metricPeak, Title: "peak RSS", Unit: "MiB", Better: "less"},
	{Name: metricSpilled, Title: "spilled by the walsender", Unit: "MiB", Better: "less"},
}

const (
	oursName  = "cdc-outbox"
	plainName = "cdc-outbox without TLS"
	rivalName = "rival"
)

// stage is shared by all scenarios. Each has a separate database.
type stage struct {
	options
	connector *rig.Connector
	rival     *rig.Connector // nil: none
	broker    *rig.Broker
	results   *figures.Report
	drained   int
}

func newStage(ctx context.Context, o options) (s *stage, err error) {
	s = &stage{options: o, results: figures.New("drain", metrics, map[string]string{})}
	if s.connector, err = rig.NewConnector(ctx, o.binary); err != nil {
		return nil, err
	}
	if o.rival != "" {
		if s.rival, err = rig.NewConnector(ctx, o.rival); err != nil {
			s.connector.Remove()
			return nil, err
		}
	}
	if s.broker, err = rig.StartBroker(ctx, o.kafka); err != nil {
		s.connector.Remove()
		return nil, err
	}
	s.results.Versions[s.broker.Name] = s.broker.Version
	return s, nil
}

func (s *stage) close() {
	s.broker.Stop()
	s.connector.Remove()
}

func (s *stage) report(w io.Writer) error { return s.results.Finish(w, oursName, s.json) }

// database starts a server with an outbox, and room for so many backlogs.
func (s *stage) database(ctx context.Context, backlogs int, load rig.Load) (*rig.Database, error) {
	if err := checkRoom(os.TempDir(), backlogs, load); err != nil {
		return nil, err
	}
	fmt.Printf("committing %s\n", load)
	db, err := rig.StartDatabase(ctx, nil)
	if err != nil {
		return nil, err
	}
	s.results.Versions["PostgreSQL"] = db.Version
	if err := db.CreateOutbox(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// checkRoom tells whether the backlogs fit: as a table, as the log, and as a
// walsender's spill files of a large transaction.
func checkRoom(dir string, backlogs int, load rig.Load) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return err
	}
	have := int64(fs.Bavail) * fs.Bsize
	need := int64(backlogs) * int64(load.Rows) * int64(load.Payload+100+300*load.Others) * 7 / 2
	if have < need {
		return fmt.Errorf("%s needs %d GiB in %s, which has %d: ask for fewer rows, or set TMPDIR", load, need>>30+1, dir, have>>30)
	}
	return nil
}

// compare has all subjects read one backlog.
func (s *stage) compare(ctx context.Context, name string, load rig.Load, socket bool) error {
	db, err := s.database(ctx, 1, load)
	if err != nil {
		return err
	}
	defer db.Close()
	b, err := db.Fill(ctx, "bench_backlog", load)
	if err != nil {
		return fmt.Errorf("fill the backlog: %w", err)
	}
	from := source{db, db.URL, b}
	var plain []figures.Turn
	switch {
	case socket:
		from.url = db.SocketURL
	case s.tls:
		plain = []figures.Turn{{Subject: plainName, Take: s.drain(from)}}
		from.url = db.TLSURL
		name += ", TLS"
	}
	if s.rival != nil {
		return s.play(ctx, label(name, s.broker.Name, load), []figures.Turn{
			{Subject: oursName, Take: s.drain(from)},
			{Subject: rivalName, Take: s.drainBy(s.rival, s.broker, from)},
		})
	}
	return s.play(ctx, label(name, s.broker.Name, load), append([]figures.Turn{
		{Subject: oursName, Take: s.drain(from)},
		{Subject: bareName, Take: s.readings(b.Events(), from.bare(rig.Publication))},
		{Subject: limitName, Take: s.readings(b.Events(), from.recvlogical(rig.Publication))},
	}, plain...))
}

// label names the load, with scenario and broker.
func label(scenario, with string, load rig.Load) string {
	return scenario + ", " + with + ": " + load.String()
}

func (s *stage) play(ctx context.Context, load string, turns []figures.Turn) error {
	return s.results.Play(ctx, os.Stdout, load, s.rounds, turns)
}
