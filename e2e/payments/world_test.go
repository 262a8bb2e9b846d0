package payments

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// deliveries is how often every message is sent.
const deliveries = 3

// copyHeader marks a record that a repeater made.
const copyHeader = "copy"

// world is everybody else: payers, a network delivering everything three times,
// and observers of the outcome.
type world struct {
	orders   int
	client   *kgo.Client // sends, and reads the shipments' topic
	admin    *kadm.Client
	shop     *pgx.Conn // the order service's database
	dispatch *pgx.Conn // the shipping service's
	ready    atomic.Int64
}

func newWorld(ctx context.Context, s *stage, orders int) (_ *world, err error) {
	w := &world{orders: orders}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	w.client, err = kgo.NewClient(kgo.SeedBrokers(s.broker()), kgo.ConsumeTopics(shipmentsTopic))
	if err != nil {
		return nil, err
	}
	w.admin = kadm.NewClient(w.client)
	if w.shop, err = pgx.Connect(ctx, s.postgres.URL(roleOrders)); err != nil {
		return nil, err
	}
	if w.dispatch, err = pgx.Connect(ctx, s.postgres.URL(roleShipping)); err != nil {
		return nil, err
	}
	_, err = w.shop.Exec(ctx, `INSERT INTO orders (id) SELECT generate_series(1, $1::int)`, orders)
	return w, err
}

func (w *world) close() {
	for _, conn := range []*pgx.Conn{w.shop, w.dispatch} {
		if conn != nil {
			_ = conn.Close(context.Background()) // nothing is pending
		}
	}
	if w.client != nil {
		w.client.Close()
	}
}

// pay sends the payment of each order three times, some time apart, and not
// faster than the killing goes on.
func (w *world) pay(ctx context.Context, killed <-chan struct{}) error {
	payments := make([]*kgo.Record, 0, deliveries*w.orders)
	for id := 1; id <= w.orders; id++ {
		value, err := json.Marshal(PaymentProcessed{OrderID: id, Cents: 100 * id})
		if err != nil {
			return err
		}
		headers := []kgo.RecordHeader{{Key: "id", Value: []byte(uuid.NewString())}}
		for range deliveries {
			payments = append(payments, &kgo.Record{Topic: paymentsTopic, Key: []byte(strconv.Itoa(id)), Value: value, Headers: headers})
		}
	}
	rand.Shuffle(len(payments), func(i, j int) { payments[i], payments[j] = payments[j], payments[i] })
	pace := time.NewTicker(25 * time.Millisecond)
	defer pace.Stop()
	for len(payments) > 0 {
		some := min(len(payments), 1+len(payments)/100)
		select {
		case <-ctx.Done():
			return nil
		case <-killed: // the rest at once
			some, killed = len(payments), nil
		case <-pace.C:
		}
		copies := make([]*kgo.Record, some) // the client writes into the records it sends
		for i, r := range payments[:some] {
			fresh := *r
			copies[i] = &fresh
		}
		if err := w.client.ProduceSync(ctx, copies...).FirstErr(); err != nil {
			return fmt.Errorf("send payments: %w", err)
		}
		payments = payments[some:]
	}
	return nil
}

// repeat sends every record that the connector publishes twice more, until ctx
// ends.
func (w *world) repeat(ctx context.Context) error {
	for {
		fetches := w.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var copies []*kgo.Record
		fetches.EachRecord(func(r *kgo.Record) {
			if isCopy(r) {
				return
			}
			w.ready.Add(1)
			for range deliveries - 1 {
				copies = append(copies, &kgo.Record{
					Topic: r.Topic, Key: r.Key, Value: r.Value,
					Headers: append([]kgo.RecordHeader{{Key: copyHeader}}, r.Headers...),
				})
			}
		})
		if err := w.client.ProduceSync(context.WithoutCancel(ctx), copies...).FirstErr(); err != nil {
			return fmt.Errorf("repeat: %w", err)
		}
	}
}

func isCopy(r *kgo.Record) bool { return len(r.Headers) > 0 && r.Headers[0].Key == copyHeader }

// settled returns when every order has shipped and every record is finished.
func (w *world) settled(ctx context.Context, s *stage, c cast) error {
	last := int64(-1)
	return await(ctx, "all orders to ship", func() (bool, error) {
		for _, a := range c.all() {
			if err := a.alive(); err != nil {
				return false, err
			}
		}
		shipped, err := number(ctx, w.dispatch, `SELECT count(DISTINCT order_id) FROM shipments`)
		if err != nil {
			return false, err
		}
		if shipped != last {
			s.say("%d of %d orders have shipped", shipped, w.orders)
			last = shipped
		}
		if shipped < int64(w.orders) {
			return false, nil
		}
		behind, err := w.behind(ctx)
		return behind == 0, err
	})
}

// behind is how many records the two services have not finished.
func (w *world) behind(ctx context.Context) (n int64, err error) {
	lags, err := w.admin.Lag(ctx, roleOrders, roleShipping)
	if err != nil {
		return 0, err
	}
	lags.Each(func(l kadm.DescribedGroupLag) { n += l.Lag.Total() })
	return n, lags.Error()
}

func number(ctx context.Context, conn *pgx.Conn, query string) (n int64, err error) {
	err = conn.QueryRow(ctx, query).Scan(&n)
	return n, err
}
