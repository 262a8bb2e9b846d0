// Command consumer prints the order events as they arrive in Kafka.
//
// Delivery is at least once: after a crash a record may arrive again, with the
// same id header. A consumer that must not act twice keeps the ids it has
// dealt with, in the same transaction as what it does about them; this one
// only prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
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
// arrived. Errors that may pass, such as a topic that does not exist yet, are
// reported on diag and waited out.
func run(ctx context.Context, o options, out, diag io.Writer) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(o.brokers, ",")...),
		kgo.ConsumerGroup(o.group),
		kgo.ConsumeTopics(o.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitMarks(),
	)
	if err != nil {
		return fmt.Errorf("create Kafka client: %w", err)
	}
	defer client.Close() // commits what is marked, leaves the group

	for seen := 0; o.events == 0 || seen < o.events; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			fmt.Fprintf(diag, "fetch %s[%d]: %v\n", topic, partition, err)
		})
		for records := fetches.RecordIter(); !records.Done(); {
			record := records.Next()
			fmt.Fprintln(out, line(record))
			client.MarkCommitRecords(record)
			seen++
		}
	}
	return nil
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
