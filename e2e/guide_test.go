package e2e

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

// TestE2EGuide runs the guide's three programs as a user would: an order is
// placed, shipped and paid, all announced once, while records come several
// times and both consumers are killed.
func TestE2EGuide(t *testing.T) {
	const orders, placed, unknown = 30, 42, 99
	m := newMarket(t, `CREATE TABLE orders (id int PRIMARY KEY, status text NOT NULL);
		INSERT INTO orders SELECT n, 'placed' FROM generate_series(1, 30) n`,
		"guide/producer", "guide/consumer", "guide/transactional")
	m.environ = append(m.environ, "REDIS="+redistest.Start(t).Addr())
	for topic, partitions := range map[string]int32{topicOf("order"): 3, "payments": 3, "shipping.dead-letter": 1, "orders.dead-letter": 1} {
		m.broker.CreateTopic(t, topic, partitions, nil)
	}

	if code := m.run("producer"); code != 0 {
		t.Fatalf("the producer ends with %d", code)
	}
	if code := m.run("producer"); code == 0 {
		t.Error("the order is placed twice")
	}
	shipping := m.program("consumer")
	shipping.awaitLog("ship order 42")
	m.finished("shipping")
	shipping.kill()
	first := m.events(topicOf("order"), 1)
	m.send(2, first...)

	payments := []*kgo.Record{payment(placed), payment(unknown)}
	for id := 1; id <= orders; id++ {
		payments = append(payments, payment(id))
	}
	paying := m.program("transactional")
	m.send(2, payments...)
	m.await(`SELECT count(*) > 0 FROM orders WHERE status = 'PAID'`)
	paying.kill()
	again := []*connector{m.program("transactional"), m.program("consumer")}
	m.await(`SELECT bool_and(status = 'PAID') FROM orders`)
	m.finished("orders")

	// Each paid order is announced once, and a missing order never.
	if n := m.number(`SELECT count(*) FROM outbox WHERE type = 'OrderReadyForShipment'`); n != orders+1 {
		t.Errorf("%d events of %d paid orders", n, orders+1)
	}
	if n := m.number(`SELECT count(DISTINCT aggregateid) FROM outbox`); n != orders+1 {
		t.Errorf("events of %d orders, want %d", n, orders+1)
	}
	for _, dead := range m.events("orders.dead-letter", 1) { // two, if the kill came between the dead letter and its key
		if string(dead.Key) != strconv.Itoa(unknown) {
			t.Errorf("order %s is a dead letter", dead.Key)
		}
	}
	// Each event is handled once: two of the order placed here.
	m.send(2, m.events(topicOf("order"), orders+2+2)...)
	m.finished("shipping")
	shipped := map[string]int{}
	for _, p := range append(again, shipping) {
		p.kill()
		for _, match := range regexp.MustCompile(`ship order (\d+)\n`).FindAllStringSubmatch(string(must.Get(os.ReadFile(p.log))(t)), -1) {
			shipped[match[1]]++
		}
	}
	for id, n := range shipped {
		want := 1
		if id == strconv.Itoa(placed) {
			want = 2
		}
		if n != want {
			t.Errorf("order %s is shipped %d times, want %d", id, n, want)
		}
	}
	if len(shipped) != orders+1 {
		t.Errorf("%d orders are shipped, want %d", len(shipped), orders+1)
	}
}

func payment(order int) *kgo.Record {
	id := strconv.Itoa(order)
	return &kgo.Record{
		Topic: "payments", Key: []byte(id), Value: []byte("paid"),
		Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("payment-" + id)}},
	}
}
