// Command orders is a sample order service publishing events through an outbox
// table. It knows PostgreSQL only: getting the events to Kafka is the
// connector's work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/orders"
)

// stepTimeout bounds one transaction. A stop lets the transaction in hand end.
const stepTimeout = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	opts, err := parse(os.Args[1:], os.Getenv, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, opts, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// options are what the service is told by flags and environment.
type options struct {
	url           string
	rate          float64 // transactions per second
	rollbackEvery int
	events        int // stop after as many committed events; 0: never
}

// parse reads the flags; the environment gives their defaults.
func parse(args []string, getenv func(string) string, usage io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.url, "url", getenv("ORDERS_DATABASE_URL"), "PostgreSQL connection string (ORDERS_DATABASE_URL)")
	flags.Float64Var(&o.rate, "rate", 1, "transactions per second (ORDERS_RATE)")
	flags.IntVar(&o.rollbackEvery, "rollback-every", 0, "roll back every n-th transaction; 0 for none (ORDERS_ROLLBACK_EVERY)")
	flags.IntVar(&o.events, "events", 0, "stop after n committed events; 0 for never")

	for name, key := range map[string]string{"rate": "ORDERS_RATE", "rollback-every": "ORDERS_ROLLBACK_EVERY"} {
		if v := getenv(key); v != "" {
			if err := flags.Set(name, v); err != nil {
				return options{}, fmt.Errorf("environment variable %s: %w", key, err)
			}
		}
	}
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	switch {
	case o.url == "":
		return options{}, errors.New("no database: give -url or ORDERS_DATABASE_URL")
	case !(o.rate > 0 && o.rate <= 1000): // refuses NaN too
		return options{}, fmt.Errorf("rate %s: must be above 0 and at most 1000", strconv.FormatFloat(o.rate, 'g', -1, 64))
	}
	return o, nil
}

// run places orders until ctx ends, which is no error, or enough events are
// committed. A transaction that fails is reported and the next one tried: a
// database that restarts does not end the service.
func run(ctx context.Context, o options, out io.Writer) error {
	pool, err := pgxpool.New(ctx, o.url)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer pool.Close()
	if err := orders.CreateTables(ctx, pool); err != nil {
		return err
	}

	service := &orders.Service{DB: pool, RollbackEvery: o.rollbackEvery}
	ticker := time.NewTicker(time.Duration(float64(time.Second) / o.rate))
	defer ticker.Stop()
	for committed := 0; o.events == 0 || committed < o.events; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		change, err := step(ctx, service)
		if err != nil {
			fmt.Fprintln(out, "failed:", err)
			continue
		}
		fmt.Fprintln(out, line(change))
		if !change.RolledBack {
			committed++
		}
	}
	return nil
}

// step runs one transaction to its end, also when ctx ends meanwhile.
func step(ctx context.Context, service *orders.Service) (orders.Change, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
	defer cancel()
	return service.Step(ctx)
}

// line describes a change for a human reader.
func line(c orders.Change) string {
	outcome := "committed  "
	if c.RolledBack {
		outcome = "rolled back"
	}
	return fmt.Sprintf("%s %-12s order=%d event=%s %s, %s, %d.%02d",
		outcome, c.EventType, c.Order.ID, c.EventID,
		c.Order.Customer, c.Order.Item, c.Order.Total/100, c.Order.Total%100)
}
