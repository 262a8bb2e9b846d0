// Command retention measures the cost of a small outbox table: an hour of traffic,
// played faster, through the connector, in phases with and without retention by turns.
//
//	go run ./bench/retention [-rate N] [-minutes N] [-speed N] …
//
// The traffic is -rate events a second for -minutes minutes, -speed times as
// fast; retention.after and the intervals of retention and autovacuum are as
// many times shorter. So many minutes run with retention, and as many without,
// in phases by turns, on a single table, slot and topic, with writers that do not
// pause. A phase restarts the connector (a transaction cut through by the stop may
// come again); the first seconds are not measured. A phase with retention also has to
// delete the rows left by the phase before.
//
// The latency is from the answer to the COMMIT until a consumer has the record.
// Only ratios of neighbours count, because the speed of a machine drifts. Every
// two seconds there is a look at the table: a row gone without having reached the
// consumer is an error. At the end package checker judges all records.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

type options struct {
	rate, perTx, payload int
	minutes, speed       float64
	after                time.Duration
	pairs                int
	skip                 time.Duration
	partitions           int
	binary               string
}

// scaled is a duration of the traffic as played.
func (o options) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) / o.speed) }

// phase is how long each phase lasts.
func (o options) phase() time.Duration {
	return o.scaled(time.Duration(o.minutes*float64(time.Minute))) / time.Duration(o.pairs)
}

// eventsPerSecond is the rate as played.
func (o options) eventsPerSecond() float64 { return float64(o.rate) * o.speed }

func (o options) validate() error {
	switch {
	case o.rate < 1 || o.perTx < 1 || o.payload < 1 || o.minutes <= 0 || o.speed <= 0 || o.pairs < 1 || o.partitions < 1:
		return errors.New("-rate, -per-tx, -payload, -minutes, -speed, -pairs and -partitions must be positive")
	case o.phase() < o.skip+unmeasuredEnd+time.Second:
		return fmt.Errorf("a phase of %s leaves nothing to measure: ask for more -minutes, less -speed or fewer -pairs", o.phase())
	}
	return nil
}

func main() { rig.Main("retention", start) }

func start(ctx context.Context) error {
	var o options
	flag.IntVar(&o.rate, "rate", 100, "events per second of the traffic")
	flag.Float64Var(&o.minutes, "minutes", 60, "minutes of traffic with retention")
	flag.Float64Var(&o.speed, "speed", 20, "how many times as fast it is played")
	flag.DurationVar(&o.after, "after", 10*time.Minute, "retention.after, in the traffic's time")
	flag.IntVar(&o.pairs, "pairs", 4, "pairs of phases")
	flag.DurationVar(&o.skip, "skip", 10*time.Second, "the beginning of a phase that is not measured")
	flag.IntVar(&o.perTx, "per-tx", 10, "events per transaction")
	flag.IntVar(&o.payload, "payload", 500, "bytes of payload; the row is about 150 more")
	flag.IntVar(&o.partitions, "partitions", 6, "partitions of the topic")
	flag.StringVar(&o.binary, "binary", "", "the connector; built from this tree when empty")
	flag.Parse()
	if err := o.validate(); err != nil {
		return err
	}
	return run(ctx, o)
}

func run(ctx context.Context, o options) error {
	connector, err := rig.NewConnector(ctx, o.binary)
	if err != nil {
		return err
	}
	defer connector.Remove()
	s, err := newStage(ctx, o, connector)
	if err != nil {
		return err
	}
	defer s.close()
	fmt.Printf("%d events/s for %.0f minutes, retention.after %s, played %.0f times as fast: %.0f events/s of %d+150 bytes, %d per transaction, after %s; %d pairs of phases of %s; %s\n",
		o.rate, o.minutes, o.after, o.speed, o.eventsPerSecond(), o.payload, o.perTx, o.scaled(o.after), o.pairs, o.phase(), "PostgreSQL "+s.db.Version)
	return s.play(ctx)
}
