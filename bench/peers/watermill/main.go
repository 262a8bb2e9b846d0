// Command watermill is Watermill's forwarder from PostgreSQL to Kafka, as its
// documentation sets it up, but for two settings: acknowledgements by all replicas, and
// the key of a record from the message's metadata.
//
//	watermill URL BROKER TOPIC
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "watermill:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, broker string) error {
	log := watermill.NewStdLogger(false, false)
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	events, err := sql.NewSubscriber(sql.BeginnerFromPgx(pool), sql.SubscriberConfig{
		SchemaAdapter: sql.DefaultPostgreSQLSchema{}, OffsetsAdapter: sql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
	}, log)
	if err != nil {
		return err
	}
	cfg := kafka.DefaultSaramaSyncPublisherConfig()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	out, err := kafka.NewPublisher(kafka.PublisherConfig{
		Brokers: []string{broker}, OverwriteSaramaConfig: cfg,
		Marshaler: kafka.NewWithPartitioningMarshaler(func(_ string, m *message.Message) (string, error) { return m.Metadata.Get("key"), nil }),
	}, log)
	if err != nil {
		return err
	}
	f, err := forwarder.NewForwarder(events, out, log, forwarder.Config{ForwarderTopic: "events"})
	if err != nil {
		return err
	}
	return f.Run(ctx)
}
