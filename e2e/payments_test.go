package e2e

import "testing"

// TestE2EExamplePayments pays and ships as its README says, and kills the
// consumer: each paid order ships once.
func TestE2EExamplePayments(t *testing.T) {
	m := newMarket(t, ``, "payments")
	pay := func(order string) {
		t.Helper()
		if code := m.run("payments", "pay", order); code != 0 {
			t.Errorf("payments pay %s ends with %d", order, code)
		}
	}
	m.broker.CreateTopic(t, topicOf("payment"), 3, nil)
	pay("1")
	shipping := m.program("payments", "ship")
	shipping.awaitLog("order 1 ships")
	pay("2")
	pay("2")
	shipping.awaitLog("order 2 ships")
	shipping.kill()
	t.Log("killed; the group takes the consumer for alive for 45 s")
	pay("3")
	m.send(2, m.events(topicOf("payment"), 3)...)
	again := m.program("payments", "ship")
	again.awaitLog("order 3 ships")
	m.finished("shipping")
	paid, shipped, distinct := m.number(`SELECT count(*) FROM payments`), m.number(`SELECT count(*) FROM shipments`),
		m.number(`SELECT count(DISTINCT order_id) FROM shipments`)
	t.Logf("%d orders are paid, %d shipments of %d orders", paid, shipped, distinct)
	if paid != 3 || shipped != 3 || distinct != 3 {
		t.Error("not each of 3 orders was paid and shipped once")
	}
	if code := m.run("payments", "refund"); code == 0 {
		t.Error("an unknown command is taken")
	}
}
