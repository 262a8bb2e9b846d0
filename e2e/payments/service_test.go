package payments

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
)

// The topics.
const (
	paymentsTopic    = "payments"
	shipmentsTopic   = "outbox.event.shipment" // cdc-outbox's topic for the aggregate type shipment
	deadLettersTopic = "payments.dead-letter"
)

// PaymentProcessed and OrderReadyForShipment are the events.
type (
	PaymentProcessed struct {
		OrderID int `json:"order_id"`
		Cents   int `json:"cents"`
	}
	OrderReadyForShipment struct {
		OrderID int `json:"order_id"`
	}
)

// service is the common part of the two consumers.
type service struct {
	name   string
	topic  string
	handle func(pool *pgxpool.Pool) consumer.Handler
}

// run consumes until ctx ends.
func (s service) run(ctx context.Context, o serviceOptions) error {
	pool, err := pgxpool.New(ctx, o.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	producer, err := kgo.NewClient(kgo.SeedBrokers(o.brokers))
	if err != nil {
		return err
	}
	defer producer.Close()
	deadLetter, err := consumer.DeadLetterTopic(producer, deadLettersTopic)
	if err != nil {
		return err
	}
	runner, err := newRunner(o, pool, deadLetter)
	if err != nil {
		return err
	}
	defer runner.Close()
	c, err := consumer.New(consumer.Config{
		Brokers: []string{o.brokers},
		Group:   s.name,
		Topics:  []string{s.topic},
		// A static member (KIP-345): the process that follows a killed one has
		// its partitions at once, not only after the session timeout.
		Options: []kgo.Opt{kgo.InstanceID(s.name + "-1")},
		Once:    consumer.Once{Scope: s.name, Runner: runner},
		Handler: s.handle(pool),
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// decode reads a record's value. A value that cannot be read now never can be.
func decode[T any](r *kgo.Record) (event T, err error) {
	if err := json.Unmarshal(r.Value, &event); err != nil {
		return event, idempotency.Terminal(fmt.Errorf("decode %T: %w", event, err))
	}
	return event, nil
}
