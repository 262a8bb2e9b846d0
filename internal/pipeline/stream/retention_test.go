package stream

import "testing"

// Retention runs at full speed beside a sink that acknowledges nothing, then
// all: every row that goes has arrived.
func TestRetentionTakesOnlyWhatIsDelivered(t *testing.T) {
	t.Parallel()
	d := retained(t)
	g := &gate{topic: &topic{}}
	i := d.start(&fakeStore{}, g).streams()
	defer d.watch(g)()

	ids := d.insert(20, 7)
	arrive(t, g.topic, len(ids))
	eventually(t, "the delivered rows to go", func() bool { return d.text("SELECT count(*)::text FROM outbox") == "0" })

	g.hold()
	ids = append(ids, d.insert(20, 7)...)
	eventually(t, "the events to be taken in", func() bool { return i.health.Status().(Status).InFlightEvents == 20 })
	passes := i.metrics.passCount()
	eventually(t, "more passes", func() bool { return i.metrics.passCount() > passes+5 })
	if got := d.text("SELECT count(*)::text FROM outbox"); got != "20" {
		t.Errorf("%s rows are left while none of 20 is delivered", got)
	}
	g.open()
	arrive(t, g.topic, len(ids))
	eventually(t, "the rest to go", func() bool { return d.text("SELECT count(*)::text FROM outbox") == "0" })
	eventually(t, "the status to say so", func() bool {
		return i.health.Status().(Status).Retention["public.outbox"].DeletedRows == int64(len(ids))
	})
	i.stop()
	wantOnce(t, g.topic, ids)
}
