package e2e

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
)

// An accepted gap holds retention, through crashes at each step, until a repair has
// published the missing events: each event arrives, although rows go as soon as can be.
func TestE2EAnAcceptedGapHoldsRetention(t *testing.T) {
	for name, o := range map[string]options{
		"at_least_once, checkpoint in Kafka":      {},
		"at_least_once, checkpoint in PostgreSQL": {config: "checkpoint:\n  store: postgres\n"},
		"at_least_once, checkpoint in a file":     {config: "checkpoint:\n  store: file\n  path: " + filepath.Join(t.TempDir(), "checkpoint") + "\n"},
		"exactly_once":                            {exactlyOnce: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.unread, o.config = true, o.config+retentionConfig
			w := newWorld(t, o)
			w.exec(plainTable)
			stream := w.loseSlot()
			published := int(stream.written.Load())
			stream.await(t, 200)
			w.wantExit(3, w.config, "run")
			if said := w.wantExit(2, w.config, "setup", "--accept-gap"); !strings.Contains(said, "error: this was a preview: nothing was changed") || !strings.Contains(said, "Noted in the checkpoint then") {
				t.Errorf("the preview says %s", said)
			}
			w.wantExit(0, w.config, "setup", "--accept-gap", "--yes")
			w.wantExit(0, w.config, "setup", "--accept-gap", "--yes") // by another operator
			ofGap := int(stream.written.Load())

			for range 3 {
				c := w.start()
				c.awaitLog("retention waits until they are published")
				stream.await(t, 50)
				c.kill()
			}
			c := w.start()
			left := func() int {
				return w.count("SELECT count(*) FROM outbox WHERE payload::int > " + strconv.Itoa(published) + " AND payload::int <= " + strconv.Itoa(ofGap))
			}
			if n := left(); n != ofGap-published {
				t.Errorf("%d rows of the gap are left, of %d", n, ofGap-published)
			}
			if said := w.wantExit(0, w.config, "status"); !strings.Contains(said, "retention waits") {
				t.Errorf("status says %s", said)
			}
			if said := w.wantExit(0, w.config, "repair", "--publish", "--until", "0s"); !strings.Contains(said, "stays noted, and retention waits: this repair looked at a part of its rows") {
				t.Errorf("repair of a part says %s", said)
			}
			repair := launch(t, exec.Command(binary, "repair", "--publish", "-c", w.config))
			repair.awaitLog("waiting for the connector to forget the accepted gap")
			repair.kill()
			c.kill()
			c = w.start()
			if said := w.wantExit(0, w.config, "repair", "--publish"); strings.Contains(said, "stays noted") { // or it is forgotten already
				t.Errorf("repair says %s", said)
			}
			c.kill()
			c = w.start()
			await.Until(t, "the rows of the gap to go", func() bool { return left() == 0 })
			if said := w.wantExit(0, w.config, "status"); strings.Contains(said, "retention waits") {
				t.Errorf("status says %s", said)
			}
			written := stream.end(t)
			w.wantEach(written, o.exactlyOnce)
			c.stop()
		})
	}
}

// A gap given up holds retention no longer, also if nobody runs at the time.
func TestE2EAnAcceptedGapIsGivenUp(t *testing.T) {
	w := newWorld(t, options{unread: true, config: retentionConfig})
	w.exec(plainTable)
	stream := w.loseSlot()
	stream.await(t, 20)
	w.wantExit(0, w.config, "setup", "--accept-gap", "--yes")
	if said := w.wantExit(2, w.config, "repair", "--give-up"); !strings.Contains(said, "would be given up") {
		t.Errorf("the preview says %s", said)
	}
	giving := launch(t, exec.Command(binary, "repair", "--give-up", "--yes", "-c", w.config))
	giving.awaitLog("waiting for the connector to forget the accepted gap")
	giving.kill()
	c := w.start()
	c.awaitLog("the accepted gap was given up, and retention goes on")
	stream.end(t)
	await.Until(t, "all rows to go", func() bool { return w.count("SELECT count(*) FROM outbox") == 0 })
	if said := w.wantExit(0, w.config, "repair", "--give-up", "--yes"); !strings.Contains(said, "The checkpoint has no accepted gap.") {
		t.Errorf("once more: %s", said)
	}
	c.stop()
}
