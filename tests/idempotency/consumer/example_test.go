package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
)

// The whole of a service: a store, a dead-letter topic, a handler.
func Example_new() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "payments", "payments.dead"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	brokers := cluster.ListenAddrs()

	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	bury, err := consumer.DeadLetterTopic(client, "payments.dead")
	if err != nil {
		fmt.Println(err)
		return
	}
	processor, err := idempotency.New(idempotency.Options{
		Store:      memory.New(memory.Options{}), // redis.New, postgres.New, … in a service
		DeadLetter: bury,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	defer processor.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := consumer.New(consumer.Config{
		Brokers: brokers, Group: "orders", Topics: []string{"payments"},
		Once: consumer.Once{Runner: processor},
		Handler: func(_ context.Context, r *kgo.Record) error {
			fmt.Printf("order %s: %s\n", r.Key, r.Value)
			if string(r.Value) == "refunded" {
				stop() // the example ends here
			}
			return nil
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, event := range []struct{ id, value string }{{"1", "paid"}, {"1", "paid"}, {"2", "refunded"}} {
		client.Produce(ctx, &kgo.Record{
			Topic: "payments", Key: []byte("o-1"), Value: []byte(event.value),
			Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(event.id)}},
		}, nil)
	}
	fmt.Println(c.Run(ctx))
	// Output:
	// order o-1: paid
	// order o-1: refunded
	// <nil>
}

// For a poll loop of your own.
func Example_onceWrap() {
	processor, err := idempotency.New(idempotency.Options{
		Store: memory.New(memory.Options{}), MaxAttempts: -1, FirstRetry: time.Minute, LastRetry: time.Minute,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer processor.Close()
	once := consumer.Once{Scope: "shipping", Runner: processor, ID: consumer.JSONPointer("/id")}
	process, err := once.Wrap(func(ctx context.Context, r *kgo.Record) error {
		fmt.Printf("ship %s\n", consumer.RecordFrom(ctx).Value)
		if r.Partition == 1 {
			return errors.New("no box is large enough")
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range []*kgo.Record{
		{Value: []byte(`{"id": "a"}`)},
		{Value: []byte(`{"id": "a"}`)}, // skipped
		{Value: []byte(`{"id": "b"}`), Partition: 1},
	} {
		if result, err := process(context.Background(), r); !result.Done() {
			fmt.Println("do not commit:", result.Disposition, result.Wait > time.Second, err)
		}
	}
	// Output:
	// ship {"id": "a"}
	// ship {"id": "b"}
	// do not commit: retry true message "shipping/b": no box is large enough
}

// A handler going on after being cut off loses the right to the record: ask the
// cause for the reason.
func Example_handler() {
	var handler consumer.Handler = func(ctx context.Context, _ *kgo.Record) error {
		select {
		case <-time.After(time.Hour): // the work
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(consumer.ErrCutOff)
	fmt.Println(handler(ctx, nil))
	// Output: handling was cut off
}

func Example_header() {
	id := consumer.Header("message-id")
	fmt.Println(id(&kgo.Record{Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte("m-1")}}}))
	// Output: m-1 <nil>
}

func Example_position() {
	fmt.Println(consumer.Position(&kgo.Record{Topic: "orders", Partition: 3, Offset: 42}))
	// Output: orders/3/42 <nil>
}

// A repeated request gets the same answer.
func Example_setResult() {
	processor, err := idempotency.New(idempotency.Options{Store: memory.New(memory.Options{}), MaxAttempts: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer processor.Close()
	process, err := consumer.Once{Scope: "pricing", Runner: processor}.Wrap(func(ctx context.Context, r *kgo.Record) error {
		fmt.Printf("calculate %s\n", r.Value)
		return consumer.SetResult(ctx, []byte("17.50"))
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	reply := func(ctx context.Context, r *kgo.Record) (idempotency.Result, error) { // a Middleware
		result, err := process(ctx, r)
		if result.Done() {
			fmt.Printf("reply %s\n", result.Value)
		}
		return result, err
	}
	r := &kgo.Record{Value: []byte("a box of screws"), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("1")}}}
	for range 2 {
		if _, err := reply(context.Background(), r); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(consumer.SetResult(context.Background(), nil))
	// Output:
	// calculate a box of screws
	// reply 17.50
	// reply 17.50
	// set a handler's result: the context is not that of a handler
}

func Example_jsonPointer() {
	fmt.Println(consumer.JSONPointer("/payment/id")(&kgo.Record{Value: []byte(`{"payment": {"id": 17}}`)}))
	// Output: 17 <nil>
}

func Example_deadLetterTopic() {
	client, err := kgo.NewClient(kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	_, err = consumer.DeadLetterTopic(client, "orders.dead")
	fmt.Println(err)
	// Output: the dead letters' client must require acks from all in-sync replicas (kgo.AllISRAcks, the default)
}
