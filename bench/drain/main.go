// Command drain measures how fast a backlog is read and written to Kafka,
// against the limit PostgreSQL sets: one walsender, read by pg_recvlogical into
// /dev/null, and by the connector's package wal alone. They take turns on a
// single server in a single run, because the speed of a machine drifts; only
// the ratios of neighbours count.
//
//	go run ./bench/drain [-scenarios NAME,…] [-rounds N] [-json FILE] …
//
// With -rival the connector is compared with another program of it instead.
//
// docs/internals/BENCHMARKS.md describes the scenarios, and docs/internals/SCALING.md
// has the conclusions from the scenarios without a connector.
// Linux only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

type options struct {
	scenarios, delays  rig.List
	rounds, partitions int
	load               rig.Load
	huge, many         int
	socket, tls, kafka bool
	binary, rival      string
	json               string
	set                rig.Settings
}

func main() { rig.Main("drain", start) }

func start(ctx context.Context) error {
	o := options{scenarios: usual(), delays: rig.List{"500us", "2ms", "10ms"}}
	flag.Var(&o.scenarios, "scenarios", "what to measure, or all:\n"+described())
	flag.IntVar(&o.rounds, "rounds", 3, "paired rounds of each scenario")
	flag.IntVar(&o.load.Rows, "rows", 300_000, "outbox rows in the backlog")
	flag.IntVar(&o.load.PerTx, "per-tx", 10, "outbox rows per transaction")
	flag.IntVar(&o.load.Payload, "payload", 500, "bytes of payload; the row is about 100 more")
	flag.IntVar(&o.load.Others, "others", 0, "rows of another table per outbox row")
	flag.IntVar(&o.huge, "transaction-rows", 1_000_000, "transaction: rows")
	flag.IntVar(&o.many, "size-rows", 10_000_000, "size: rows of the larger backlog; the other has a tenth")
	flag.Var(&o.delays, "delays", "network: delays of each direction")
	flag.IntVar(&o.partitions, "partitions", 6, "partitions of the topic")
	flag.BoolVar(&o.socket, "socket", false, "connect over the Unix socket instead of TCP loopback")
	flag.BoolVar(&o.tls, "tls", false, "connect over TLS, and let the connector read without TLS, too")
	flag.BoolVar(&o.kafka, "kafka", false, "write to Apache Kafka instead of kfake (needs Java 17 and, once, Maven)")
	flag.StringVar(&o.binary, "binary", "", "the connector; built from this tree when empty")
	flag.StringVar(&o.rival, "rival", "", "another connector, such as an older one: the two take turns, without other readers")
	flag.StringVar(&o.json, "json", "", "a file for the results")
	flag.Var(&o.set, "set", "a configuration key=value for the connector, repeatable")
	flag.Parse()
	if o.scenarios.String() == "all" {
		o.scenarios = names(scenarios)
	}
	if err := o.check(); err != nil {
		return err
	}
	return run(ctx, o)
}

func (o options) check() error {
	for _, name := range o.scenarios {
		if find(name) == nil {
			return fmt.Errorf("-scenarios: there is no %q, only %s", name, strings.Join(names(scenarios), ", "))
		}
	}
	if o.rival != "" && slices.ContainsFunc(o.scenarios, func(name string) bool { return slices.Contains(alone, name) }) {
		return fmt.Errorf("-rival: not in the scenarios %s", alone.String())
	}
	for _, text := range o.delays {
		if d, err := time.ParseDuration(text); err != nil || d < 0 {
			return fmt.Errorf("-delays: %q is no delay such as 2ms", text)
		}
	}
	if o.socket && o.tls {
		return errors.New("-tls: PostgreSQL has no TLS over a Unix socket")
	}
	l := o.load
	if o.rounds < 1 || l.PerTx < 1 || l.Others < 0 || min(l.Rows, o.huge, o.many/10) < max(10*l.PerTx, 100) {
		return errors.New("want a round, and ten transactions and 100 rows, at least")
	}
	return nil
}

func run(ctx context.Context, o options) (err error) {
	s, err := newStage(ctx, o)
	if err != nil {
		return err
	}
	defer s.close()
	for _, name := range o.scenarios {
		if err := find(name).play(ctx, s, name); err != nil {
			// Everything measured before is still worth a look.
			return errors.Join(fmt.Errorf("%s: %w", name, err), s.report(os.Stdout))
		}
	}
	return s.report(os.Stdout)
}
