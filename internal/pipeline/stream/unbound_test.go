package stream

import "testing"

// An instance with a missing column in its configuration finds the slot free. The instance
// may go on, with earlier rows, but is not ready: the next event would stop it.
func TestAnInstanceWithoutAColumnIsNotReady(t *testing.T) {
	d := outbox(t)
	first := d.run().streams()
	d.publish(1, 1)
	first.stop()
	d.event.Payload = "content"
	i := d.run().streams()
	i.unready("content")
	if len(i.health.Remedies()) == 0 {
		t.Error("without a remedy")
	}
	d.exec("ALTER TABLE outbox RENAME payload TO content")
	eventually(t, "readiness", i.ready)
	d.publish(1, 1)
	d.finish(i)
}
