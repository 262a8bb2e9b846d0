package payments

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/guard"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// paid is the order's change of state. An order already PAID is left alone, and
// nothing is announced a second time.
var paid = guard.Transition{Table: "orders", Key: "id", Status: "status", From: []string{"PENDING"}, To: "PAID"}

// runOrders is the order service: a payment makes the order PAID and announces
// the order as ready to ship, in a single transaction.
func runOrders(ctx context.Context, o serviceOptions) error {
	return service{name: roleOrders, topic: paymentsTopic, handle: handlePayment}.run(ctx, o)
}

func handlePayment(pool *pgxpool.Pool) consumer.Handler {
	return func(ctx context.Context, r *kgo.Record) error {
		payment, err := decode[PaymentProcessed](r)
		if err != nil {
			return err
		}
		return inTx(ctx, pool, func(tx pgx.Tx, _ bool) error {
			changed, err := paid.Apply(ctx, guard.PGX(tx), payment.OrderID)
			if err != nil || !changed {
				return err
			}
			_, err = outbox.Write(ctx, tx, outbox.Event{
				AggregateType: "shipment",
				AggregateID:   strconv.Itoa(payment.OrderID),
				Type:          "OrderReadyForShipment",
				Payload:       OrderReadyForShipment{OrderID: payment.OrderID},
			})
			return err
		})
	}
}
