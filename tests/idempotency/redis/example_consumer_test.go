package redis_test

import (
	"context"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
)

// consumeOrders calls ship once for each event of the topic, until ctx ends.
func consumeOrders(ctx context.Context, brokers []string, client *goredis.Client, ship consumer.Handler) error {
	producer, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return err
	}
	defer producer.Close()
	deadLetter, err := consumer.DeadLetterTopic(producer, "shipping.dead-letter")
	if err != nil {
		return err
	}
	store, err := redis.New(client, redis.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	processor, err := idempotency.New(idempotency.Options{
		Store:      store,
		Lease:      30 * time.Second,
		Retention:  14 * 24 * time.Hour,
		DeadLetter: deadLetter,
	})
	if err != nil {
		return err
	}
	defer processor.Close()
	c, err := consumer.New(consumer.Config{
		Brokers: brokers, Group: "shipping", Topics: []string{"outbox.event.order"},
		Once:    consumer.Once{Runner: processor},
		Handler: ship,
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// withHomeMadeKeys is for the time of the change from keys of one's own: it
// passes over what they know.
func withHomeMadeKeys(client *goredis.Client, next consumer.Handler) consumer.Handler {
	return func(ctx context.Context, r *kgo.Record) error {
		id, err := consumer.Header("id")(r)
		if err != nil {
			return err
		}
		known, err := client.Exists(ctx, "processed:"+id).Result()
		if err != nil || known > 0 {
			return err
		}
		return next(ctx, r)
	}
}

// An event is delivered three times, another was handled before the change from
// SETNX.
func Example_consumer() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "outbox.event.order", "shipping.dead-letter"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	brokers := cluster.ListenAddrs()
	client := connect()
	defer client.Close()
	if err := client.SetNX(context.Background(), "processed:id-0", "", time.Hour).Err(); err != nil {
		fmt.Println(err)
		return
	}
	if err := deliver(brokers, "id-0", "id-1", "id-1", "id-1", "id-2"); err != nil {
		fmt.Println(err)
		return
	}

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err = consumeOrders(ctx, brokers, client, withHomeMadeKeys(client, func(_ context.Context, r *kgo.Record) error {
		id := string(r.Headers[0].Value)
		fmt.Println("ship", id)
		if id == "id-2" {
			stop() // the example ends here
		}
		return nil
	}))
	fmt.Println(err)
	// Output:
	// ship id-1
	// ship id-2
	// <nil>
}

// deliver writes an event for each id.
func deliver(brokers []string, ids ...string) error {
	producer, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic("outbox.event.order"))
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, id := range ids {
		event := &kgo.Record{Key: []byte("order-1"), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}
		if err := producer.ProduceSync(context.Background(), event).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}
