// Command pipelines measures the costs of many pipelines in a single process: each has a
// database, a slot, an outbox and a topic. Another process with a single pipeline has turns
// in the same run, at the same events per second in all. With -processes, the many pipelines
// in one process have turns with as many on the processes of a fleet. With -poll, the many with
// slots have turns with as many that poll, as each slot's reader reads the server's whole log.
//
//	go run ./bench/pipelines [-pipelines N] [-processes N] [-poll] [-servers N] [-rounds N] …
//
// Linux only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

type options struct {
	pipelines, servers, rounds int
	processes, rate            int
	poll                       bool
	settle, idle, window       time.Duration
	delivery                   string
	kafka                      bool
	binary, json               string
	set                        rig.Settings
}

func main() { rig.Main("pipelines", start) }

func start(ctx context.Context) error {
	var o options
	flag.IntVar(&o.pipelines, "pipelines", 100, "of the process with many")
	flag.IntVar(&o.processes, "processes", 1, "of a fleet with the many pipelines, against one process with them; 1: one pipeline against them")
	flag.BoolVar(&o.poll, "poll", false, "the many pipelines with slots, against as many that poll")
	flag.IntVar(&o.servers, "servers", 1, "servers of PostgreSQL, with the databases in turn")
	flag.IntVar(&o.rounds, "rounds", 3, "paired rounds")
	flag.IntVar(&o.rate, "rate", 10, "events a second of each of the many pipelines")
	flag.DurationVar(&o.settle, "settle", 10*time.Second, "the time before an idle time or traffic counts")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "the idle time")
	flag.DurationVar(&o.window, "window", 30*time.Second, "the time of the traffic")
	flag.StringVar(&o.delivery, "delivery", "at_least_once", "at_least_once or exactly_once")
	flag.BoolVar(&o.kafka, "kafka", false, "Apache Kafka (needs Java 17 and, once, Maven); false: kfake, in memory")
	flag.StringVar(&o.binary, "binary", "", "cdc-outbox; built from this tree when empty")
	flag.StringVar(&o.json, "json", "", "a file for the results")
	flag.Var(&o.set, "set", "a key=value for cdc-outbox, repeatable")
	flag.Parse()
	if o.poll && o.processes > 1 {
		return errors.New("want -poll without -processes")
	}
	if o.pipelines < 2 || o.servers < 1 || o.servers > o.pipelines || o.processes < 1 || o.processes > o.pipelines || o.rounds < 1 || o.rate < 1 {
		return errors.New("want two pipelines, a round, an event a second, and no more servers or processes than pipelines")
	}
	return run(ctx, o)
}

func run(ctx context.Context, o options) error {
	s, err := newStage(ctx, o)
	if err != nil {
		return err
	}
	defer s.close()
	load := fmt.Sprintf("idle, then %d events/s", o.rate*o.pipelines)
	turns := s.turns()
	played := s.results.Play(ctx, os.Stdout, load, o.rounds, turns)
	return errors.Join(played, s.results.Finish(os.Stdout, turns[0].Subject, o.json))
}
