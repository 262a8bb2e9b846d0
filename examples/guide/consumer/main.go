// Command consumer is the guide's first example as a program: it ships orders,
// each once, and keeps in Redis which are handled.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	goredis "github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("BROKERS"), os.Getenv("REDIS")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, brokers, address string) error {
	producer, err := kgo.NewClient(kgo.SeedBrokers(brokers))
	if err != nil {
		return err
	}
	defer producer.Close()
	deadLetter, err := consumer.DeadLetterTopic(producer, "shipping.dead-letter")
	if err != nil {
		return err
	}
	client := goredis.NewClient(&goredis.Options{Addr: address, ContextTimeoutEnabled: true})
	defer client.Close()
	store, err := redis.New(client, redis.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	processor, err := idempotency.New(idempotency.Options{Store: store, DeadLetter: deadLetter})
	if err != nil {
		return err
	}
	defer processor.Close()
	c, err := consumer.New(consumer.Config{
		Brokers: []string{brokers}, Group: "shipping", Topics: []string{"outbox.event.order"},
		Once:    consumer.Once{Runner: processor},
		Handler: ship,
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func ship(_ context.Context, r *kgo.Record) error {
	log.Printf("ship order %s", r.Key)
	return nil
}
