// Command debezium compares cdc-outbox with Debezium's PostgreSQL connector and
// outbox event router, on Kafka Connect standalone. Both read from one
// PostgreSQL and write to a single broker of Apache Kafka, by turns in a single
// run, because the speed of a machine drifts: only neighbours are compared.
//
//	go run ./bench/debezium [-modes drain,steady,idle] [-rounds N] [-json FILE] …
//
// The modes compat, json, json_schema and avro drain a backlog with event.compat beside
// Debezium with the corresponding converter; the two must write the same records.
//
// The mode many has a process with many pipelines beside a worker with as many
// connectors.
//
// With -modes delivery the command compares our two ways to deliver instead, without
// Debezium.
//
// docs/internals/BENCHMARKS-debezium.md describes the measurements, and their
// fairness. Linux only: processor time and memory are read from the kernel.
// Needs Java 17 and, once, Maven.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// The values of -modes.
const (
	modeDrain  = "drain"
	modeSteady = "steady"
	modeIdle   = "idle"
	// The modes of formats: event.compat beside Debezium with a converter.
	modeCompat     = "compat"
	modeJSON       = "json"
	modeJSONSchema = "json_schema"
	modeAvro       = "avro"
	// modeMany has many databases.
	modeMany = "many"
	// modeDelivery has our two ways to deliver beside each other, without Debezium.
	modeDelivery = "delivery"
)

type options struct {
	modes              rig.List
	rounds, partitions int
	brokers            int
	tls                bool
	rows, perTx        int
	payload            int
	trafficPerTx       int
	warmDrains         int
	rates              rig.List
	window, settle     time.Duration
	warmTraffic        time.Duration
	idle               time.Duration
	pipelines, rate    int
	manyHeap           string
	binary, json       string
	heap               string
	set, debezium      rig.Settings
	broker             rig.Settings
}

func main() { rig.Main("debezium", start) }

func start(ctx context.Context) error {
	o := options{modes: rig.List{modeDrain, modeSteady, modeIdle}, rates: rig.List{"1000"}}
	flag.Var(&o.modes, "modes", "what to measure: drain, steady, idle; compat, json, json_schema, avro; many; delivery")
	flag.IntVar(&o.brokers, "brokers", 1, "of Kafka: 1, or 3 with three replicas")
	flag.BoolVar(&o.tls, "tls", false, "reach PostgreSQL and Kafka over TLS")
	flag.IntVar(&o.rounds, "rounds", 3, "paired rounds of each mode")
	flag.IntVar(&o.partitions, "partitions", 6, "partitions of a topic")
	flag.IntVar(&o.payload, "payload", 490, "bytes of payload; a row is about 100 more")
	flag.IntVar(&o.rows, "rows", 200_000, "drain: rows")
	flag.IntVar(&o.perTx, "per-tx", 10, "drain: rows per transaction")
	flag.IntVar(&o.warmDrains, "warm-drains", 3, "drain and formats: those of a warm JVM (delivery: of the brokers) that do not count")
	flag.Var(&o.rates, "rates", "steady: rows per second; several with commas")
	flag.IntVar(&o.trafficPerTx, "traffic-per-tx", 1, "steady and many: rows per transaction")
	flag.DurationVar(&o.window, "window", 30*time.Second, "steady and many: the time that counts")
	flag.DurationVar(&o.settle, "settle", 5*time.Second, "steady, idle and many: the time before, which does not")
	flag.DurationVar(&o.warmTraffic, "warm-traffic", 30*time.Second, "steady: traffic for a warm JVM (delivery: for the brokers) before the first round; many: in each")
	flag.DurationVar(&o.idle, "idle", 10*time.Second, "idle and many: the idle time that counts")
	flag.IntVar(&o.pipelines, "pipelines", 20, "many: pipelines of a process, or connectors of a worker")
	flag.IntVar(&o.rate, "rate", 10, "many: rows per second of each")
	flag.StringVar(&o.manyHeap, "many-heap", manyHeap, "many: the heap of Kafka Connect")
	flag.StringVar(&o.binary, "binary", "", "cdc-outbox; built from this tree when empty")
	flag.StringVar(&o.json, "json", "", "a file for the results")
	flag.StringVar(&o.heap, "heap", tunedHeap, "the heap of the tuned Kafka Connect")
	flag.Var(&o.set, "set", "a key=value for cdc-outbox, repeatable")
	flag.Var(&o.broker, "broker", "a key=value for the brokers, repeatable")
	flag.Var(&o.debezium, "debezium", "a key=value for the tuned Debezium and that of many, repeatable")
	flag.Parse()
	if err := o.check(); err != nil {
		return err
	}
	return run(ctx, o)
}

func (o options) check() error {
	for _, mode := range o.modes {
		if !slices.Contains(rig.List{modeDrain, modeSteady, modeIdle, modeCompat, modeJSON, modeJSONSchema, modeAvro, modeMany, modeDelivery}, mode) {
			return fmt.Errorf("-modes: there is no %q", mode)
		}
	}
	for _, rate := range o.rates {
		if n, err := strconv.Atoi(rate); err != nil || n < o.trafficPerTx {
			return fmt.Errorf("-rates: %q is no rate", rate)
		}
	}
	if o.rounds < 1 || o.trafficPerTx < 1 || o.perTx < 1 || o.rows < o.perTx {
		return errors.New("want a round, and a transaction, at least")
	}
	if slices.Contains(o.modes, modeMany) && (o.pipelines < 1 || o.rate < o.trafficPerTx) {
		return errors.New("many: want a pipeline, and a transaction per second, at least")
	}
	return nil
}

func run(ctx context.Context, o options) (err error) {
	connector, err := rig.NewConnector(ctx, o.binary)
	if err != nil {
		return err
	}
	defer connector.Remove()
	s, err := newStage(ctx, o, connector)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	modes := map[string]func(context.Context) error{modeDrain: s.drains, modeSteady: s.steadies, modeIdle: s.idles, modeMany: s.manies, modeDelivery: s.deliveries}
	for _, mode := range o.modes {
		play := modes[mode]
		if play == nil {
			play = func(ctx context.Context) error { return s.formats(ctx, mode) }
		}
		if err := play(ctx); err != nil {
			// Everything measured before is still worth a look.
			return errors.Join(fmt.Errorf("%s: %w", mode, err), s.results.Finish(os.Stdout, o.base(), s.json))
		}
	}
	return s.results.Finish(os.Stdout, o.base(), s.json)
}

// base is the subject others are compared with.
func (o options) base() string {
	if slices.Contains(o.modes, modeDelivery) {
		return onceOrMore
	}
	return oursName
}
