// Command idempotency measures the cost of handling a message once, per store, against
// the bare client doing a single round trip with a write, the least cost of a home-made
// answer: SET NX, INSERT, a conditional PutItem. The output is tables in Markdown.
//
//	go run ./bench/idempotency [-rounds N] [-messages N] [-workers N] [-stores redis,…] [-backlog N]
//
// In each round every store gets as many new messages: first or last the bare
// calls, in between the claims, the completions, and a duplicate of each
// message. All take part in each round, because the speed of a machine drifts; only
// figures of a single round are divided by each other, and printed are the medians over
// the rounds.
//
// Then consumers work off a backlog: a hand-written loop, and the library in both
// orders, with Redis and with PostgreSQL's Transactional (backlog.go).
//
// The servers are started for the occasion, with the durability the stores'
// documentation asks for: Redis with appendonly yes and everysec, PostgreSQL
// with fsync. DynamoDB Local stands in for DynamoDB; only the ratios mean
// anything. An unavailable store is left out, with the reason.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

type options struct {
	rounds, messages, workers int
	stores                    []string
	backlog, backlogRounds    int
}

func main() {
	rig.Main("idempotency", func(ctx context.Context) error {
		o, err := parse(os.Args[1:])
		if err != nil {
			return err
		}
		return run(ctx, o, os.Stdout)
	})
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("idempotency", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 15, "rounds, after one to warm up; 0 leaves out all but the backlogs")
	flags.IntVar(&o.messages, "messages", 320, "new messages per store and round")
	flags.IntVar(&o.workers, "workers", 16, "concurrent workers of the second table")
	stores := flags.String("stores", "redis,postgres,dynamodb", "the stores with a server, separated by commas; memory takes part anyway")
	flags.IntVar(&o.backlog, "backlog", 40_000, "records of the backlog that consumers work off, a quarter of them with PostgreSQL; 0 leaves that out")
	flags.IntVar(&o.backlogRounds, "backlog-rounds", 5, "rounds of that, after one to warm up")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || min(o.messages, o.workers, o.backlogRounds) < 1 || min(o.rounds, o.backlog) < 0 {
		return o, errors.New("takes flags only, and numbers of at least 1")
	}
	o.stores = strings.FieldsFunc(*stores, func(r rune) bool { return r == ',' })
	for _, name := range o.stores {
		if starters[name] == nil {
			return o, fmt.Errorf("-stores: %q is not redis, postgres or dynamodb", name)
		}
	}
	return o, nil
}

// String returns the command line for the same measurement.
func (o options) String() string {
	return fmt.Sprintf("go run ./bench/idempotency -rounds %d -messages %d -workers %d -stores %s -backlog %d -backlog-rounds %d",
		o.rounds, o.messages, o.workers, strings.Join(o.stores, ","), o.backlog, o.backlogRounds)
}

// run measures, and prints.
func run(ctx context.Context, o options, out io.Writer) error {
	fmt.Fprintf(out, "Measured on %s with `%s`:\n", machine(), o)
	if o.rounds > 0 {
		if err := runStores(ctx, o, out); err != nil {
			return err
		}
	}
	if o.backlog > 0 {
		return measureBacklogs(ctx, o, out)
	}
	return nil
}

// runStores starts the stores, and measures their calls.
func runStores(ctx context.Context, o options, out io.Writer) error {
	var s stage
	defer s.close()
	for _, name := range o.stores {
		if err := starters[name](ctx, &s, o); err != nil {
			if ctx.Err() != nil {
				return err
			}
			s.note("%s is left out: %v", name, err)
		}
	}
	s.addMemory()

	one, err := measure(ctx, s.subjects, o, 1)
	if err != nil {
		return err
	}
	many, err := measure(ctx, s.subjects, o, o.workers)
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, note := range s.notes {
		fmt.Fprintln(out, "-", note)
	}
	printCosts(out, "One message at a time", one)
	printCosts(out, fmt.Sprintf("%d workers", o.workers), many)
	printWindow(out, one)
	return nil
}
