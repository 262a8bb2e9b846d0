// Command consumer prints the order events as they arrive in Kafka.
//
// Delivery is at least once: a record may arrive again, with the same id
// header. The library passes it over. The ids of printed events are kept in
// memory here; a consumer that must not act twice after a crash either takes
// another store.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	opts, err := parse(os.Args[1:], os.Getenv, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, opts, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}

// options are what the consumer is told by flags and environment.
type options struct {
	brokers string // comma-separated
	topic   string
	group   string
	events  int // stop after as many events; 0: never
}

// parse reads the flags; the environment gives their defaults.
func parse(args []string, getenv func(string) string, usage io.Writer) (options, error) {
	brokers := getenv("ORDERS_BROKERS")
	if brokers == "" {
		brokers = "localhost:9092"
	}
	var o options
	flags := flag.NewFlagSet("consumer", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.brokers, "brokers", brokers, "Kafka brokers, comma-separated (ORDERS_BROKERS)")
	flags.StringVar(&o.topic, "topic", "outbox.event.order", "topic to read")
	flags.StringVar(&o.group, "group", "orders-example", "consumer group")
	flags.IntVar(&o.events, "events", 0, "stop after n events; 0 for never")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	return o, nil
}

// run prints events to out until ctx ends, which is no error, or enough have
// arrived. Errors meanwhile, such as a topic that does not exist yet, are
// logged on diag and waited out.
func run(ctx context.Context, o options, out, diag io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	processor, err := idempotency.New(idempotency.Options{Store: memory.New(memory.Options{}), MaxAttempts: -1})
	if err != nil {
		return err
	}
	defer processor.Close()
	var (
		mu   sync.Mutex // records of several partitions are handled at once
		seen int
	)
	c, err := consumer.New(consumer.Config{
		Brokers: strings.Split(o.brokers, ","), Group: o.group, Topics: []string{o.topic},
		Once: consumer.Once{Runner: processor},
		Handler: func(_ context.Context, r *kgo.Record) error {
			mu.Lock()
			defer mu.Unlock()
			if seen++; seen == o.events {
				stop()
			}
			_, err := fmt.Fprintln(out, line(r))
			return err
		},
		Logger: slog.New(slog.NewTextHandler(diag, nil)),
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// line describes a record for a human reader.
func line(r *kgo.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s[%d]@%d key=%s", r.Topic, r.Partition, r.Offset, r.Key)
	for _, h := range r.Headers {
		fmt.Fprintf(&b, " %s=%s", h.Key, h.Value)
	}
	fmt.Fprintf(&b, " %s", r.Value)
	return b.String()
}
