package payments

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/guard"
)

// runShipping is the shipping service: it ships an order that is ready. Its
// table does not refuse a second shipment of the same order.
func runShipping(ctx context.Context, o serviceOptions) error {
	return service{name: roleShipping, topic: shipmentsTopic, handle: handleReady}.run(ctx, o)
}

func handleReady(pool *pgxpool.Pool) consumer.Handler {
	id := consumer.Header("id")
	return func(ctx context.Context, r *kgo.Record) error {
		ready, err := decode[OrderReadyForShipment](r)
		if err != nil {
			return err
		}
		event, err := id(r)
		if err != nil {
			return err
		}
		return inTx(ctx, pool, func(tx pgx.Tx, guarded bool) error {
			if guarded {
				first, err := guard.Applied{}.First(ctx, guard.PGX(tx), roleShipping, event)
				if err != nil || !first {
					return err
				}
			}
			_, err := tx.Exec(ctx, `INSERT INTO shipments (order_id) VALUES ($1)`, ready.OrderID)
			return err
		})
	}
}
