// Command quarantine measures what bad events that are parked cost the good ones: the
// throughput of a backlog, and the time from commit to arrival under a steady load, each with
// and without bad events, in turns in a single run.
//
//	go run ./bench/quarantine [-rows N] [-rate N] [-for D] [-rounds N] …
//
// Linux only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

type options struct {
	rows, rate, rounds int
	load               time.Duration
	every              int
	delivery           string
	kafka              bool
	binary             string
}

func main() { rig.Main("quarantine", start) }

func start(ctx context.Context) error {
	var o options
	flag.IntVar(&o.rows, "rows", 500_000, "outbox rows of the backlog")
	flag.IntVar(&o.rate, "rate", 2000, "events a second of the steady load")
	flag.DurationVar(&o.load, "for", 15*time.Second, "the steady load's time")
	flag.IntVar(&o.rounds, "rounds", 3, "paired rounds")
	flag.IntVar(&o.every, "every", 100, "one event of so many is bad")
	flag.StringVar(&o.delivery, "delivery", "at_least_once", "at_least_once or exactly_once")
	flag.BoolVar(&o.kafka, "kafka", true, "Apache Kafka (needs Java 17 and, once, Maven); false: kfake, in memory")
	flag.StringVar(&o.binary, "binary", "", "the connector; built from this tree when empty")
	flag.Parse()
	if o.rounds < 1 || o.every < 2 || o.rate < perTx || o.rows < perTx {
		return errors.New("want a round, and more good events than bad ones")
	}
	return run(ctx, o)
}

// stage is where the rounds are played.
type stage struct {
	options
	*rig.Stage
	played int // names slots and topics
}

func run(ctx context.Context, o options) (err error) {
	s := &stage{options: o}
	if s.Stage, err = rig.Open(ctx, o.binary, map[string]string{"wal_level": "logical", "max_replication_slots": "50", "max_wal_senders": "50"}, o.kafka); err != nil {
		return err
	}
	defer s.Close()
	if err := s.prepare(ctx); err != nil {
		return err
	}
	fmt.Printf("%s, PostgreSQL %s, %s %s; one event of %d is bad\n", o.delivery, s.DB.Version, s.Broker.Name, s.Broker.Version, o.every)
	var throughput, late []float64
	for n := range o.rounds {
		sides := []int{0, o.every}
		if n%2 == 1 {
			slices.Reverse(sides)
		}
		var rate, p99 [2]float64 // without bad events, and with
		for _, every := range sides {
			side := min(every, 1)
			if rate[side], err = s.drain(ctx, every); err != nil {
				return err
			}
			if p99[side], err = s.steady(ctx, every); err != nil {
				return err
			}
		}
		throughput, late = append(throughput, rate[1]/rate[0]), append(late, p99[1]/p99[0])
		fmt.Printf("round %d: backlog %.0f and %.0f events/s, ratio %.2f; p99 of good keys %.2f and %.2f ms, ratio %.2f\n",
			n+1, rate[0], rate[1], rate[1]/rate[0], p99[0], p99[1], p99[1]/p99[0])
	}
	fmt.Printf("median of %d, with bad events to without: throughput %.2f, p99 of good keys %.2f\n", o.rounds, figures.Median(throughput), figures.Median(late))
	return nil
}
