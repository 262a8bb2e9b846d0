// Command payments plays a whole flow between three services, exactly once in
// effect, while the processes that carry it are killed:
//
//	payments ─▶ orders ─▶ PostgreSQL: order PAID, event in the outbox
//	                          │ cdc-outbox
//	                          ▼
//	                      Kafka ─▶ shipping ─▶ PostgreSQL: one shipment per order
//
// The services are in orders.go and shipping.go; how a message is handled once
// is chosen in runner.go. The rest is the stage: servers, kills, and the count
// at the end. Run it by make example-payments STORE=redis (or postgres,
// dynamodb, memory).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	opts, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = act(ctx, opts, os.Stdout)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "payments:", err)
		os.Exit(1)
	}
}

// options are what a process of the example is told.
type options struct {
	role     string // stage, or what the stage starts: orders, shipping
	store    storeKind
	storeURL string // Redis or DynamoDB
	database string
	brokers  string

	orders    int
	kills     int
	connector string // the program
	logs      string // a directory
}

func parse(args []string, usage io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.role, "role", roleStage, "stage, orders or shipping")
	store := flags.String("store", string(inRedis), "where the consumers keep what they have handled: redis, postgres, dynamodb or memory")
	flags.StringVar(&o.storeURL, "store-url", "", "host:port of Redis or DynamoDB (services)")
	flags.StringVar(&o.database, "database", "", "PostgreSQL connection string (services)")
	flags.StringVar(&o.brokers, "brokers", "", "a broker's host:port (services)")
	flags.IntVar(&o.orders, "orders", 200, "how many orders are paid, each three times")
	flags.IntVar(&o.kills, "kills", 12, "how many processes are killed at least, in turn")
	flags.StringVar(&o.connector, "connector", "bin/cdc-outbox", "the connector's program")
	flags.StringVar(&o.logs, "logs", "", "a directory for the processes' logs; a temporary one by default")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.store = storeKind(*store)
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("takes flags only, got %q", flags.Arg(0))
	case !o.store.known():
		return o, fmt.Errorf("store %q: must be redis, postgres, dynamodb or memory", *store)
	case o.orders < 1 || o.kills < 0:
		return o, errors.New("at least one order, and no less than no kill")
	}
	return o, nil
}

// act plays the role.
func act(ctx context.Context, o options, out io.Writer) error {
	switch o.role {
	case roleStage:
		return play(ctx, o, out)
	case roleOrders:
		return runOrders(ctx, o)
	case roleShipping:
		return runShipping(ctx, o)
	}
	return fmt.Errorf("role %q: must be stage, orders or shipping", o.role)
}

// The roles.
const (
	roleStage    = "stage"
	roleOrders   = "orders"
	roleShipping = "shipping"
)
