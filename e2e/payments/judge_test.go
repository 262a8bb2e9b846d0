package payments

import (
	"context"
	"fmt"
	"slices"
)

// judge counts what came of the play, and returns an error unless each order
// was shipped once.
func (w *world) judge(ctx context.Context, s *stage, c cast) error {
	paid, err := number(ctx, w.shop, `SELECT count(*) FROM orders WHERE status = 'PAID'`)
	if err != nil {
		return err
	}
	events, err := number(ctx, w.shop, `SELECT count(*) FROM outbox`)
	if err != nil {
		return err
	}
	shipments, err := number(ctx, w.dispatch, `SELECT count(*) FROM shipments`)
	if err != nil {
		return err
	}
	distinct, err := number(ctx, w.dispatch, `SELECT count(DISTINCT order_id) FROM shipments`)
	if err != nil {
		return err
	}
	dead, err := w.deadLetters(ctx)
	if err != nil {
		return err
	}
	behind, err := w.behind(ctx)
	if err != nil {
		return err
	}
	s.say("\nkilled: orders %d, cdc-outbox %d, shipping %d, Redis %d times",
		c.orders.kills, c.connector.kills, c.shipping.kills, s.redisKills)
	s.say("payments: %d orders, each delivered %d times; %d orders are PAID, %d events in the outbox", w.orders, deliveries, paid, events)
	s.say("ready for shipment: %d records published, each delivered %d times", w.ready.Load(), deliveries)
	s.say("shipments: %d, of %d orders; dead letters: %d; not finished: %d records", shipments, distinct, dead, behind)
	want := int64(w.orders)
	if counts := []int64{paid, events, shipments, distinct}; slices.ContainsFunc(counts, func(n int64) bool { return n != want }) || dead > 0 {
		return fmt.Errorf("not each of %d orders was paid, announced and shipped once", w.orders)
	}
	s.say("each order shipped once")
	return nil
}

func (w *world) deadLetters(ctx context.Context) (n int64, err error) {
	ends, err := w.admin.ListEndOffsets(ctx, deadLettersTopic)
	if err != nil {
		return 0, err
	}
	return ends.Offsets()[deadLettersTopic][0].At, ends.Error()
}
