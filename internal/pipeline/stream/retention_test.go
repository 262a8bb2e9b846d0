package stream

import "testing"

// Retention runs at full speed beside a sink that acknowledges nothing, then
// all: every row that goes has arrived.
func TestRetentionTakesOnlyWhatIsDelivered(t *testing.T) {
	d := retained(t)
	i := d.run().streams()
	defer d.watch(d.gate)()

	d.publish(20, 7)
	eventually(t, "the delivered rows to go", func() bool { return d.text("SELECT count(*)::text FROM outbox") == "0" })

	d.gate.hold()
	d.insert(20, 7)
	i.inFlight(20)
	passes := i.metrics.passCount()
	eventually(t, "more passes", func() bool { return i.metrics.passCount() > passes+5 })
	if got := d.text("SELECT count(*)::text FROM outbox"); got != "20" {
		t.Errorf("%s rows are left while none of 20 is delivered", got)
	}
	d.gate.open()
	d.arrive()
	eventually(t, "the rest to go", func() bool { return d.text("SELECT count(*)::text FROM outbox") == "0" })
	eventually(t, "the status to say so", func() bool {
		return i.status().Retention["public.outbox"].DeletedRows == int64(len(d.ids))
	})
	d.finish(i)
}
