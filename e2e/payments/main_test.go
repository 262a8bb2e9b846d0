package payments

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// The roles of the test's program on the stage.
const (
	roleOrders   = "orders"
	roleShipping = "shipping"
)

// TestMain lets the test's program play the services too.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "-role" {
		goleak.VerifyTestMain(m)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := act(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "payments:", err)
		os.Exit(1)
	}
}

// serviceOptions are what a service is told.
type serviceOptions struct {
	store    storeKind
	storeURL string // Redis or DynamoDB
	database string
	brokers  string
}

// act plays a service until ctx ends.
func act(ctx context.Context, args []string) error {
	var o serviceOptions
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	role := flags.String("role", "", "orders or shipping")
	store := flags.String("store", "", "where the service keeps what it has handled")
	flags.StringVar(&o.storeURL, "store-url", "", "host:port of Redis or DynamoDB")
	flags.StringVar(&o.database, "database", "", "PostgreSQL connection string")
	flags.StringVar(&o.brokers, "brokers", "", "a broker's host:port")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.store = storeKind(*store)
	switch *role {
	case roleOrders:
		return runOrders(ctx, o)
	case roleShipping:
		return runShipping(ctx, o)
	}
	return fmt.Errorf("role %q: must be orders or shipping", *role)
}
